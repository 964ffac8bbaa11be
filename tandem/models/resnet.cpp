// ResNet: a stem, stages of residual blocks that halve the image and double the channels, global average
// pooling, one linear layer. Each residual block is a `block`. The stem is a 3x3 convolution, for small
// images, or ImageNet's 7x7 with stride 2 and pooling. With ImageNet's, width 64 and 1000 classes, blocks
// [2,2,2,2] are ResNet-18, [3,4,6,3] ResNet-34, and with bottlenecks ResNet-50.
#include <string>

#include "tandem/models/model.h"

namespace tandem {
namespace {

Value norm(Builder& b, const ModelConfig& config, Value x, std::string_view name) {
  if (config.norm == ImageNorm::Group) return b.group_norm(x, config.groups, name, config.norm_eps);
  return b.batch_norm(x, name, config.norm_eps, /*momentum=*/0.1, config.norm == ImageNorm::Sync);
}

Value shortcut_of(Builder& b, const ModelConfig& config, Value x, int64_t channels, int64_t stride) {
  if (stride == 1 && b.type(x).shape.last() == channels) return x;
  return norm(b, config, b.conv2d(x, channels, 1, stride, "shortcut"), "shortcut_norm");
}

Value basic_block(Builder& b, const ModelConfig& config, Value x, int64_t channels, int64_t stride) {
  Value y = b.relu(norm(b, config, b.conv2d(x, channels, 3, stride, "conv1"), "norm1"));
  y = norm(b, config, b.conv2d(y, channels, 3, 1, "conv2"), "norm2");
  return b.relu(b.add(y, shortcut_of(b, config, x, channels, stride)));
}

// Narrow in the middle, where the image is halved, and four times as wide at the end.
Value bottleneck_block(Builder& b, const ModelConfig& config, Value x, int64_t channels, int64_t stride) {
  constexpr int64_t kExpansion = 4;
  const int64_t wide = kExpansion * channels;
  Value y = b.relu(norm(b, config, b.conv2d(x, channels, 1, 1, "conv1"), "norm1"));
  y = b.relu(norm(b, config, b.conv2d(y, channels, 3, stride, "conv2"), "norm2"));
  y = norm(b, config, b.conv2d(y, wide, 1, 1, "conv3"), "norm3");
  return b.relu(b.add(y, shortcut_of(b, config, x, wide, stride)));
}

Value stem(Builder& b, const ModelConfig& config) {
  const bool small = config.stem == ImageStem::Small;
  const Value x = b.conv2d(b.images(), config.width, small ? 3 : 7, small ? 1 : 2, "stem");
  const Value y = b.relu(norm(b, config, x, "stem_norm"));
  return small ? y : b.max_pool(y, 3, 2, 1);
}

}  // namespace

void build_resnet(Builder& b, const ModelConfig& config) {
  Value x = stem(b, config);
  int32_t index = 0;
  int64_t channels = config.width;
  for (size_t stage = 0; stage < config.blocks.size(); ++stage) {
    if (stage > 0) channels *= 2;
    for (int64_t i = 0; i < config.blocks[stage]; ++i) {
      const auto block = b.block(index++);
      const int64_t stride = stage > 0 && i == 0 ? 2 : 1;
      x = config.bottleneck ? bottleneck_block(b, config, x, channels, stride)
                            : basic_block(b, config, x, channels, stride);
    }
  }
  b.cross_entropy(b.linear(b.global_avg_pool(x), config.classes, "head", {.dims = "classes,width"}));
}

}  // namespace tandem
