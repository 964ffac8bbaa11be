// status.json of a run: how it stands, for whoever asks while it trains (tandem status). Rank 0 rewrites it
// about once a second, and when something happens.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "tandem/metrics/rank_figures.h"
#include "tandem/metrics/step_record.h"

namespace tandem {

struct RunStatus {
  std::string state = "starting";  // starting, running, done, interrupted, diverged, failed
  std::string message;             // why it ended, where that needs words
  StepRecord record;               // the last; step 0 for none
  int64_t of = 0;                  // steps
  std::optional<float> eval_loss;
  std::optional<double> eta_s;
  int64_t last_checkpoint = 0;  // its step; 0 for none
  std::string device;
  std::vector<RankFigures> ranks;
  std::optional<int> slow;  // the rank that others wait for
  // What the launcher knows of the ranks' places: a JSON array with rank, state, command, block, waiting_for
  // and since_s of each; empty where there is none.
  std::string places;
};

// Whole or not at all. It is gone after a power cut, as the run is.
void write_status(const std::filesystem::path& run_dir, const RunStatus& status);

}  // namespace tandem
