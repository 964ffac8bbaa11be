// One optimizer step: the passes of a global batch, then the update. The same class drives training,
// profiles and benchmarks.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tandem/config/config.h"
#include "tandem/data/loader.h"
#include "tandem/models/model.h"
#include "tandem/runtime/session.h"
#include "tandem/train/loss_scaler.h"
#include "tandem/train/step_average.h"

namespace tandem {

// Parameters whose gradients have a norm of their own in metrics: their numbers among the model's.
struct NormGroup {
  std::string name;
  std::vector<size_t> params;
};
// Those of train.groups that are trained, "grad_norm/PATTERN".
std::vector<NormGroup> norm_groups(const Config& config, const BuildModel& model);

struct StepResult {
  double loss = 0;  // mean over the targets of the global batch
  double accuracy = 0;
  double grad_norm = 0;                                    // before clipping
  std::vector<std::pair<std::string, float>> group_norms;  // likewise, of each NormGroup
  std::vector<std::pair<std::string, float>> metrics;      // the model's own, "metric/NAME"
  bool applied = true;       // false: gradients were not finite, the update was skipped
  int64_t first_sample = 0;  // of the global batch: its global number
  int64_t samples = 0;
  int64_t targets = 0;
  int64_t epoch = 0;
  double data_wait_s = 0;
  double loss_scale = 1;  // used by this step
  bool stop = false;      // some rank was asked to stop
  bool save = false;      // rank 0 wants a checkpoint
};

class StepRunner {
 public:
  StepRunner(const Config& config, Session& session, Loader& loader, std::vector<NormGroup> groups = {});

  // Steps count from 1. All ranks learn in the same step that one of them is to stop, and that rank 0, whose
  // clock counts, wants a checkpoint. Calls `before_update`, where there is one, when the gradients of the
  // whole batch are there.
  StepResult run(int64_t step, bool stop = false, bool save = false,
                 const std::function<void()>& before_update = {});

  // Before an evaluation: an optimizer that averages lets the average be read. The next step takes it back.
  void show_average();

  int64_t updates() const { return updates_; }
  void set_updates(int64_t updates) { updates_ = updates; }
  LossScaler& scaler() { return scaler_; }
  const LossScaler& scaler() const { return scaler_; }

 private:
  void run_passes(float scale, StepResult& result);
  // On one rank the host adds up the passes' statistics of the loss. Of several, each adds up its own on the
  // device, and the update sums them over all ranks.
  bool alone() const { return session_.step().position.shape.world() == 1; }
  void add_stats(std::span<double> sums) const;
  void add_group_norms(std::span<const std::byte> sums, StepResult& result) const;
  void write_hyper(int64_t step);

  const Config& config_;
  Session& session_;
  Loader& loader_;
  const std::vector<NormGroup> groups_;
  LossScaler scaler_;  // after the last step
  bool scaler_written_ = false;
  StepAverage average_;
  bool average_shown_ = true;                      // as weights are when a run begins, and after a restore
  std::vector<std::array<double, 2>> pass_stats_;  // of this step's passes
  int64_t updates_ = 0;  // applied so far: Adam's bias correction counts these, not skipped steps
};

}  // namespace tandem
