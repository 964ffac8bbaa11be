// The trials of a sweep: every combination of the values of some config keys, or some of them by lot.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tandem::pipeline {

struct Axis {
  std::string key;
  std::vector<std::string> values;
};

// "train.lr=1e-3,3e-4". A comma within brackets or quotes parts nothing. Throws ConfigError.
Axis parse_axis(const std::string& text);

// "key=value" for each axis; the last axis runs fastest. `most` > 0 takes that many by lot, the same ones for
// the same seed, in the order of the grid.
std::vector<std::vector<std::string>> combinations(std::span<const Axis> axes, int64_t most, uint64_t seed);

// Successive halving: after how much of their steps the trials are compared, and how many of them go on. The
// last entry is the end. `factor` 0: nobody is stopped early.
struct Rung {
  double fraction = 1;
  size_t trials = 0;  // that run up to here
};
std::vector<Rung> halving_rungs(size_t trials, int64_t factor);

}  // namespace tandem::pipeline
