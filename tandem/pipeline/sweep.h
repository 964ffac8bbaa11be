// Many runs of one config with other values of some keys, the losers stopped early: all trials run for a
// part of their steps, the better ones go on (successive halving). A trial is an ordinary run directory,
// which is asked to stop and later goes on where it was, so that the best one is, bit for bit, the run that
// `tandem train` alone would have been. Decisions follow from the trials' own metrics: a sweep that is run
// again finds everything it has done.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/pipeline/grid.h"

namespace tandem::pipeline {

struct Trial {
  std::vector<std::string> sets;  // "train.lr=1e-3", what makes it this trial
  int64_t steps = 0;              // at its end
};

struct Sweep {
  std::filesystem::path folder;      // trial-000, trial-001, ...
  std::vector<std::string> command;  // `train CONFIG` and what all trials have in common
  std::string identity;              // what must be the same for a folder to be gone on with
  std::vector<Trial> trials;
  int64_t factor = 2;  // 1 / factor of the trials go on from each rung; 0: all
  int jobs = 1;

  std::filesystem::path run_of(size_t trial) const;
};

enum class TrialState { Finished, Stopped, Failed };

struct TrialResult {
  TrialState state = TrialState::Finished;
  int64_t steps = 0;
  double part = 0;   // of its steps, that it was asked for
  double loss = 0;   // what it was last compared by
  std::string note;  // why it failed, or ended before its last step
};

struct SweepResult {
  bool by_eval = false;  // `loss` is of the evaluation, not of training
  std::vector<TrialResult> trials;
  std::vector<size_t> ranking;  // best first: who got further, then who had the lower loss
};

// Tells on stderr what happens. Throws Error with Interrupted after a signal, and where every trial failed.
SweepResult run_sweep(const Sweep& sweep);

std::string sweep_table(const Sweep& sweep, const SweepResult& result);
std::string sweep_json(const Sweep& sweep, const SweepResult& result);
std::string sweep_svg(const Sweep& sweep, const SweepResult& result);

}  // namespace tandem::pipeline
