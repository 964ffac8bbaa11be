#include "tandem/config/validate_size.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "tandem/base/error.h"
#include "tandem/base/quantity.h"
#include "tandem/config/mesh.h"
#include "tandem/config/place.h"

namespace tandem {
namespace {

constexpr int64_t kMaxBlocks = 2048;           // that are compiled one by one
constexpr int64_t kMaxUnrolledBlocks = 16384;  // of a pipeline rank, which compiles every pass of a step
constexpr double kMaxFlops = 6e18;  // of a pass; recomputation adds a third, and 9.2e18 is the last
constexpr double kMaxBytes = 1e18;

// Roughly, and in doubles, which do not overflow.
struct Size {
  double flops = 0;  // of a pass
  double bytes = 0;  // of weights, their state and activations
};

Size size_of_text_model(const Config& config) {
  const ModelConfig& m = config.model;
  const auto layers = static_cast<double>(m.layers), width = static_cast<double>(m.width);
  const auto context = static_cast<double>(m.context), vocab = static_cast<double>(m.vocab);
  const auto ffn = static_cast<double>(m.ffn_width()), heads = static_cast<double>(m.heads);
  const auto micro_batch = static_cast<double>(config.train.micro_batch);
  const double tokens = micro_batch * context;
  const double inner = heads * static_cast<double>(m.head_width());  // of attention
  const double params = 2 * vocab * width + layers * (4 * width * inner + 3 * ffn * width);
  const double values = tokens * (layers * (10 * std::max(width, inner) + 4 * ffn) + 2 * vocab);
  return {.flops = 6 * params * tokens + 12 * layers * tokens * context * inner,
          .bytes = 16 * params + 4 * values + 4 * micro_batch * heads * context * context};
}

Size size_of_image_model(const Config& config) {
  const ModelConfig& m = config.model;
  const auto micro_batch = static_cast<double>(config.train.micro_batch),
             width = static_cast<double>(m.width);
  const auto side = static_cast<double>(m.image_size), classes = static_cast<double>(m.classes);
  const double pixels = side * side, inputs = pixels * static_cast<double>(m.channels);
  if (m.has(kEqualBlocks)) {
    const auto layers = static_cast<double>(m.layers);
    const double params = width * (inputs + layers * width + classes);
    return {.flops = 6 * params * micro_batch,
            .bytes = 16 * params + 4 * micro_batch * (inputs + 4 * layers * width + classes)};
  }
  Size size{.bytes = 4 * micro_batch * inputs};
  double channels = width;
  for (size_t stage = 0; stage < m.blocks.size(); ++stage, channels *= 2) {
    const double halved = std::ldexp(pixels, -2 * static_cast<int>(stage));
    const double params = static_cast<double>(m.blocks[stage]) * 18 * channels * channels;
    size.flops += 6 * params * halved * micro_batch;
    size.bytes += 16 * params + 40 * static_cast<double>(m.blocks[stage]) * micro_batch * halved * channels;
  }
  size.bytes += 16 * channels * classes;
  return size;
}

// The key that the user gave and that is furthest above its default.
std::string largest_given(const ResolvedConfig& resolved) {
  const ModelConfig& m = resolved.config.model;
  const ModelConfig defaults;
  const std::pair<std::string_view, double> growths[] = {
      {"model.layers", static_cast<double>(m.layers) / static_cast<double>(defaults.layers)},
      {"model.width", static_cast<double>(m.width) / static_cast<double>(defaults.width)},
      {"model.head", static_cast<double>(m.head) / 64},
      {"model.context", static_cast<double>(m.context) / static_cast<double>(defaults.context)},
      {"model.vocab", static_cast<double>(m.vocab) / static_cast<double>(defaults.vocab)},
      {"model.ffn", static_cast<double>(m.ffn) / static_cast<double>(4 * defaults.width)},
      {"model.image_size", static_cast<double>(m.image_size) / static_cast<double>(defaults.image_size)},
      {"model.channels", static_cast<double>(m.channels) / static_cast<double>(defaults.channels)},
      {"model.classes", static_cast<double>(m.classes) / static_cast<double>(defaults.classes)},
      {"model.blocks", static_cast<double>(m.blocks.size()) / static_cast<double>(defaults.blocks.size())},
      {"train.micro_batch", static_cast<double>(resolved.config.train.micro_batch) / 8},
      {"data.prefetch", static_cast<double>(resolved.config.data.prefetch) / 4},
  };
  std::string_view best = "model.width";
  double most = 0;
  for (const auto& [key, growth] : growths) {
    if (!was_given(resolved, key) || growth <= most) continue;
    best = key;
    most = growth;
  }
  return std::string(best);
}

void check_blocks(const ResolvedConfig& resolved) {
  const Config& config = resolved.config;
  const int64_t blocks = num_blocks(config.model);
  if (blocks > kMaxBlocks) {
    throw ConfigError("{}: a model has at most {} blocks, found {}; use fewer",
                      place_of_first(resolved, {"model.blocks", "model.layers"}), kMaxBlocks, blocks);
  }
  if (config.parallel.pipeline == 1) return;
  const int64_t held = (blocks + config.parallel.pipeline - 1) / config.parallel.pipeline;
  const int64_t most = std::max<int64_t>(1, kMaxUnrolledBlocks / held);
  if (passes_per_step(config) <= most) return;
  throw ConfigError(
      "{}: a pipeline rank of {} blocks takes at most {} passes a step, found train.batch / "
      "(train.micro_batch * "
      "parallel.data) = {}; use a larger train.micro_batch or a smaller train.batch",
      place_of_first(resolved, {"train.batch", "train.micro_batch", "parallel.pipeline"}), held, most,
      passes_per_step(config));
}

}  // namespace

void validate_size(const ResolvedConfig& resolved) {
  const Config& config = resolved.config;
  check_blocks(resolved);
  const ModelConfig& model = config.model;
  Size size = model.is_language_model() ? size_of_text_model(config) : size_of_image_model(config);
  const double sample = model.is_language_model()
                            ? 2 * static_cast<double>(model.context)
                            : static_cast<double>(model.channels) * std::pow(model.image_size, 2);
  size.bytes += 4 * static_cast<double>(config.data.prefetch + 1) *
                static_cast<double>(config.train.micro_batch) * sample;
  if (size.flops <= kMaxFlops && size.bytes <= kMaxBytes) return;
  const std::string key = largest_given(resolved);
  throw ConfigError(
      "{}: a pass would take about {} FLOPs and {} bytes, more than any machine has and 64 bits count; use a "
      "smaller "
      "{}",
      place_of(resolved, key), format_count(size.flops), format_count(size.bytes), key);
}

}  // namespace tandem
