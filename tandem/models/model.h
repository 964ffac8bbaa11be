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

void build_gpt2(Builder& b, const ModelConfig& config);
void build_llama(Builder& b, const ModelConfig& config);
void build_resnet(Builder& b, const ModelConfig& config);
void build_mlp(Builder& b, const ModelConfig& config);

}  // namespace tandem
