// Any text as a config.json: refused with one line, or a model that is the same after it was written and
// read.
#include <cstdio>
#include <cstdlib>

#include "tandem/base/error.h"
#include "tandem/hub/config_json.h"
#include "tandem/hub/tensor_names.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  constexpr int64_t kFewLayers = 64;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::optional<hub::HubConfig> config;
  try {
    config = hub::parse_config_json(text, "fuzz");
  } catch (const ConfigError& error) {
    if (std::string_view(error.what()).find('\n') != std::string_view::npos) std::abort();
    return 0;
  } catch (const DataError& error) {
    if (std::string_view(error.what()).find('\n') != std::string_view::npos) std::abort();
    return 0;
  }
  if (config->model.layers > kFewLayers) return 0;
  const std::string written =
      hub::config_json(*config->family, config->model, config->positions, DType::BF16).dump();
  const std::string differs =
      hub::first_difference(config->model, hub::parse_config_json(written, "written").model);
  if (!differs.empty()) {
    std::fprintf(stderr, "%s was lost in %s\n", differs.c_str(), written.c_str());
    std::abort();
  }
  if (hub::param_sources(*config->family, config->model, "").empty()) std::abort();
  return 0;
}
