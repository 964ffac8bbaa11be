// The smallest gpt2 that has all its parts, for tests of what is done to any model.
#pragma once

#include "tandem/models/model.h"

namespace tandem {

inline ModelConfig tiny_gpt2(int64_t layers) {
  ModelConfig config;
  config.layers = layers;
  config.width = 16;
  config.heads = 2;
  config.context = 8;
  config.vocab = 32;
  return config;
}

}  // namespace tandem
