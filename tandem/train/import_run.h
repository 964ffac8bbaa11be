// A run that has not trained yet, made of a Hugging Face directory: its checkpoint of step 0 holds the
// weights, and training goes on from it with any mesh and precision.
#pragma once

#include <filesystem>

#include "tandem/config/config.h"
#include "tandem/models/model.h"
#include "tandem/runtime/backend.h"

namespace tandem {

// Returns the checkpoint's directory. Takes 4 bytes of memory a parameter. Throws ConfigError where `run`
// holds something already.
std::filesystem::path import_run(const Config& config, const Backend& backend, const BuildModel& model,
                                 const std::filesystem::path& run);

}  // namespace tandem
