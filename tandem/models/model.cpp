#include "tandem/models/model.h"

namespace tandem {
namespace {

Builder builder_for(const ModelConfig& config, int64_t micro_batch) {
  return config.is_language_model() ? Builder::for_tokens(micro_batch, config.context)
                                    : Builder::for_images(micro_batch, config.image_size, config.channels);
}

}  // namespace

BuildModel own_model(std::function<void(Builder&, const ModelConfig&)> write) {
  return [write = std::move(write)](const ModelConfig& config, int64_t micro_batch) {
    Builder b = builder_for(config, micro_batch);
    write(b, config);
    return b.take();
  };
}

Graph build_model(const ModelConfig& config, int64_t micro_batch) {
  Builder b = builder_for(config, micro_batch);
  switch (config.family) {
#define TANDEM_BUILD_FAMILY(value, name) \
  case Family::value: build_##name(b, config); break;
    TANDEM_FAMILIES(TANDEM_BUILD_FAMILY)
#undef TANDEM_BUILD_FAMILY
  }
  return b.take();
}

}  // namespace tandem
