// summary.json of a run, and the table printed when it ends.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tandem/base/mesh.h"
#include "tandem/metrics/step_record.h"

namespace tandem {

struct Summary {
  int64_t steps = 0;             // of the whole run
  int64_t steps_this_start = 0;  // since this process began; the times and speeds below are theirs
  float final_loss = 0;
  std::optional<float> eval_loss;
  std::optional<float> eval_accuracy;
  std::optional<double> loss_floor;     // where the data's true entropy is known
  std::optional<double> best_accuracy;  // where the data's Bayes accuracy is known
  CountedIn unit = CountedIn::Tokens;
  double per_s = 0;  // of them
  std::optional<double> mfu;
  int64_t peak_rss_bytes = 0;
  int64_t peak_device_bytes = 0;         // of the device's own memory, libraries included
  std::optional<int64_t> library_bytes;  // of those, what the driver and its libraries took beside the plan
  std::vector<std::pair<std::string, int64_t>> planned_bytes;  // by category, in the plan's order
  double wall_s = 0;
  double first_step_s = 0;
  int world_size = 1;
  std::string strategy;  // of the data axis
  MeshShape mesh;
  std::string precision;
  std::string hostname;  // this machine's when empty
  std::string hardware;
};

void write_summary(const std::filesystem::path& run_dir, const Summary& summary);  // whole or not at all

std::string summary_table(const Summary& summary, const std::filesystem::path& run_dir);

}  // namespace tandem
