// Builds the forward graph of one micro-batch from a model's config. The graph is logical: fp32, one
// device, no strategy applied; the passes of compile/ do the rest.
#pragma once

#include <functional>

#include "tandem/config/config.h"
#include "tandem/ir/builder.h"
#include "tandem/ir/graph.h"

namespace tandem {

Graph build_model(const ModelConfig& config, int64_t micro_batch);

// A user's own model takes build_model's place wherever one is run: `own_model` turns a function that writes
// the model with a builder into one.
using BuildModel = std::function<Graph(const ModelConfig& config, int64_t micro_batch)>;
BuildModel own_model(std::function<void(Builder& b, const ModelConfig& config)> write);

#define TANDEM_BUILD_FAMILY(value, name) void build_##name(Builder& b, const ModelConfig& config);
TANDEM_FAMILIES(TANDEM_BUILD_FAMILY)
#undef TANDEM_BUILD_FAMILY

}  // namespace tandem
