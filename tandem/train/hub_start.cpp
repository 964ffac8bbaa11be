#include "tandem/train/hub_start.h"

#include "tandem/base/file.h"
#include "tandem/hub/config_json.h"
#include "tandem/hub/kept_files.h"
#include "tandem/train/model_state.h"

namespace tandem {

namespace fs = std::filesystem;

hub::HubWeights open_hub_weights(const Config& config) {
  const hub::HubConfig described = hub::read_config_json(config.model.from);
  return {config.model.from, *described.family, config.model};
}

void load_hub(Session& session, const Config& config, const World& world) {
  load_weights(session, open_hub_weights(config), /*quiet=*/!world.leads());
}

void keep_hub(const Config& config, const fs::path& run, const Latest& restored) {
  const fs::path folder = run / hub::kKeptFolder;
  if (restored.manifest) {
    // checkpoints/step-N lies in a run's directory, where it has not been moved.
    const fs::path earlier = hub::kept_folder_of(restored.manifest->directory);
    if (is_there(folder / "config.json") || !is_there(earlier / "config.json")) return;
    return hub::keep_files(earlier, folder);
  }
  if (config.model.from.empty()) return;
  if (starts_from_hub(config)) hub::keep_stored_as(open_hub_weights(config), folder);
  hub::keep_files(config.model.from, folder);
}

}  // namespace tandem
