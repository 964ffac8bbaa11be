// Which tensors of a family's files make which of our parameters: q, k and v one qkv, gate and up one
// gate_up, and gpt2's matrices the other way round.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/shape.h"
#include "tandem/config/config.h"
#include "tandem/hub/hub_family.h"

namespace tandem::hub {

// A tensor that gives `rows` rows of a parameter; transposed: its own rows are the parameter's columns.
struct Source {
  std::string tensor;
  int64_t rows = 0;
  bool transposed = false;
};

struct ParamSources {
  std::string name;  // of the parameter: "blocks.0.qkv.weight"
  Shape shape;
  std::vector<Source> parts;  // one below the other

  // What a part's tensor has to be.
  Shape tensor_shape(const Source& part) const;
};

// Every parameter of the model. Files of the bare model, without its head, lack the prefix of names.
std::string_view name_prefix(const HubFamily& family);  // "model.", "transformer."
std::vector<ParamSources> param_sources(const HubFamily& family, const ModelConfig& model,
                                        std::string_view prefix);

inline constexpr std::string_view kHeadTensor = "lm_head.weight";

// Tensors that old files have and that are no weights: masks and angles.
bool is_buffer(std::string_view tensor);

}  // namespace tandem::hub
