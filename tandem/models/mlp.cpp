// A multi-layer perceptron over flattened images: the smallest model that uses the whole system.
#include <cmath>

#include "tandem/models/model.h"

namespace tandem {

void build_mlp(Builder& b, const ModelConfig& config) {
  const Shape& images = b.type(b.images()).shape;
  Value x = b.reshape(b.images(), Shape({images[0], images.elems() / images[0]}));
  for (int32_t layer = 0; layer < config.layers; ++layer) {
    const auto block = b.block(layer);
    const double std = std::sqrt(2.0 / static_cast<double>(b.type(x).shape.last()));
    x = b.relu(b.linear(x, config.width, "hidden", {.init_std = std}));
  }
  b.cross_entropy(b.linear(x, config.classes, "head"));
}

}  // namespace tandem
