// The training loop: compiled step, data, optimizer settings, evaluation, checkpoints, metrics.
#pragma once

#include <filesystem>
#include <string>

#include "tandem/base/error.h"
#include "tandem/base/system.h"
#include "tandem/config/config.h"
#include "tandem/models/model.h"
#include "tandem/runtime/backend.h"
#include "tandem/train/run_directory.h"

namespace tandem {

struct TrainOptions {
  std::filesystem::path run_dir;
  ResumeFrom resume;
  BuildModel model = build_model;  // or a user's own
  WorldInfo world = {};            // who this process is; alone if not given
  double start_s = steady_s();     // when the process began, for first_step_s
};

// Trains to the last step (Done), or saves and stops on Ctrl-C or SIGTERM (Interrupted).
ExitCode train(const Config& config, const Backend& backend, const TrainOptions& options);

}  // namespace tandem
