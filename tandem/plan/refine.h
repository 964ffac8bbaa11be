// What a candidate's step takes, from a small part of it: what stands between an estimate (estimate.h), which
// costs nothing and is rough, and compiling all of its ranks with every pass that their memory depends on.
//
// Without a pipeline the model is compiled for the candidate's mesh with two blocks and with four, and both
// are simulated: what two further blocks add, all others add. With one, each chunk of the model is compiled
// as a stage of a pipeline without chunks, with two passes; the schedule is then simulated over these lists.
// The times are those of the whole step but for what neighbouring chunks of a rank do to each other.
#pragma once

#include <optional>

#include "tandem/models/model.h"
#include "tandem/plan/search_space.h"
#include "tandem/runtime/backend.h"

namespace tandem::plan {

inline constexpr double kRefinedSlack = 0.01;  // by which it may be too high

class Refiner {
 public:
  Refiner(const Config& config, const Backend& backend, const Cluster& cluster, const BuildModel& model,
          int num_blocks)
      : config_(config), backend_(backend), cluster_(cluster), model_(model), blocks_(num_blocks) {}

  // Seconds of a step; none where blocks are not alike, or too few for a part of them to be less work.
  std::optional<double> seconds(const Candidate& candidate) const;

 private:
  double without_pipeline(const Candidate& candidate) const;
  double of_pipeline(const Candidate& candidate) const;

  const Config& config_;
  const Backend& backend_;
  const Cluster& cluster_;
  const BuildModel& model_;
  const int blocks_;
};

}  // namespace tandem::plan
