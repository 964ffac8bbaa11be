// What a candidate would take, roughly and at once: to decide which are worth compiling, and in which order.
//
// The model is compiled with one block and with two, for each size of pass, tensor axis, precision and
// recomputation that a search may choose; what the second adds is what every further block adds, in time and
// in memory. The other axes are arithmetic on that: how many blocks a stage has, how many passes are in
// flight, what the data axis sends.
#pragma once

#include <map>
#include <optional>
#include <tuple>

#include "tandem/models/model.h"
#include "tandem/plan/search_space.h"
#include "tandem/runtime/backend.h"

namespace tandem::plan {

struct Estimate {
  double seconds = 0;  // of a step; 0: not known
  double memory = 0;   // bytes that it needs at least
};

class Estimator {
 public:
  // Compiles what it needs for these candidates.
  Estimator(const Config& config, const Backend& backend, const Cluster& cluster, const BuildModel& model,
            const std::vector<Candidate>& candidates, int num_blocks, int threads);

  Estimate of(const Candidate& candidate) const;

  // What a block adds, and what there is besides.
  struct Part {
    double seconds = 0;         // of a pass
    double update_seconds = 0;  // of a step, where nothing is shared
    double weights = 0;         // bytes
    double state = 0;           // masters and the optimizer's
    double activations = 0;     // bytes that a pass in flight keeps
  };
  struct Probe {
    Part block, rest;
  };

 private:
  using Key = std::tuple<int, int64_t, int, int, int64_t>;
  static Key key_of(const Candidate& candidate);
  Part measure(const Candidate& candidate, int64_t layers, const Backend& backend,
               const BuildModel& model) const;
  double data_axis_seconds(const Candidate& candidate, const Probe& probe) const;
  double sends_seconds(const Candidate& candidate) const;
  double update_seconds(const Candidate& candidate, const Probe& probe) const;
  double memory_bytes(const Candidate& candidate, const Probe& probe) const;

  const Config config_;
  const Cluster cluster_;
  const int blocks_;
  std::map<Key, std::optional<Probe>> probes_;  // none: it cannot be compiled
};

}  // namespace tandem::plan
