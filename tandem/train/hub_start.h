// A run whose model comes from a Hugging Face directory (model.from): its first weights, and what the run's
// own directory keeps of it, so that it goes on and is exported without that directory.
#pragma once

#include <filesystem>

#include "tandem/checkpoint/reader.h"
#include "tandem/config/config.h"
#include "tandem/hub/hub_weights.h"
#include "tandem/runtime/session.h"
#include "tandem/train/world.h"

namespace tandem {

// Whether a run of this config that has no checkpoint starts from the directory's weights.
inline bool starts_from_hub(const Config& config) {
  return !config.model.from.empty() && config.model.init == ModelInit::Weights;
}

// The weights that model.from names, checked against the model. Throws ConfigError or DataError.
hub::HubWeights open_hub_weights(const Config& config);

// All ranks call it together; each reads its own pieces.
void load_hub(Session& session, const Config& config, const World& world);

// Into <run>/hub: of model.from at a run's beginning, of the checkpoint's run where one goes on elsewhere.
// Does nothing where the model comes from no directory, or the files are there.
void keep_hub(const Config& config, const std::filesystem::path& run, const Latest& restored);

}  // namespace tandem
