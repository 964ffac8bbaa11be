// ResNet for small images: a 3x3 stem without pooling, stages of basic blocks that halve the image and
// double the channels, global average pooling, one linear layer. Each residual block is a `block`.
#include <string>

#include "tandem/models/model.h"

namespace tandem {
namespace {

Value norm(Builder& b, const ModelConfig& config, Value x, std::string_view name) {
  if (config.norm == ImageNorm::Group) return b.group_norm(x, config.groups, name, config.norm_eps);
  return b.batch_norm(x, name, config.norm_eps, /*momentum=*/0.1, config.norm == ImageNorm::Sync);
}

Value basic_block(Builder& b, const ModelConfig& config, Value x, int64_t channels, int64_t stride) {
  Value y = b.relu(norm(b, config, b.conv2d(x, channels, 3, stride, "conv1"), "norm1"));
  y = norm(b, config, b.conv2d(y, channels, 3, 1, "conv2"), "norm2");
  const bool same = stride == 1 && b.type(x).shape.last() == channels;
  const Value shortcut =
      same ? x : norm(b, config, b.conv2d(x, channels, 1, stride, "shortcut"), "shortcut_norm");
  return b.relu(b.add(y, shortcut));
}

}  // namespace

void build_resnet(Builder& b, const ModelConfig& config) {
  Value x = b.relu(norm(b, config, b.conv2d(b.images(), config.width, 3, 1, "stem"), "stem_norm"));
  int32_t index = 0;
  int64_t channels = config.width;
  for (size_t stage = 0; stage < config.blocks.size(); ++stage) {
    if (stage > 0) channels *= 2;
    for (int64_t i = 0; i < config.blocks[stage]; ++i) {
      const auto block = b.block(index++);
      x = basic_block(b, config, x, channels, stage > 0 && i == 0 ? 2 : 1);
    }
  }
  b.cross_entropy(b.linear(b.global_avg_pool(x), config.classes, "head", {.dims = "classes,width"}));
}

}  // namespace tandem
