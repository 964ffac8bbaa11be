// Which sample comes when. Samples are numbered globally, 0, 1, 2, ... across epochs and ranks, so that a
// position in the data is one integer, exact in a checkpoint and the same for every world size.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tandem/data/dataset.h"
#include "tandem/data/mixture_order.h"

namespace tandem {

// Where a mixture begins: from sample `sample` on its sets are drawn from anew, each from its position on.
// Other weights than before begin where the run is, and no set loses its place.
struct MixtureStart {
  int64_t sample = 0;
  std::vector<int64_t> positions;  // of each set; empty: all at 0
  bool operator==(const MixtureStart&) const = default;
};

class Sampler {
 public:
  Sampler(int64_t num_samples, bool shuffle, uint64_t seed)
      : Sampler(std::vector<DatasetPart>{{num_samples, 1.0}}, shuffle, seed) {}
  Sampler(std::vector<DatasetPart> parts, bool shuffle, uint64_t seed);

  int64_t epoch(int64_t global_sample) const { return global_sample / num_samples_; }

  // Within an epoch of a set every index of it occurs once; each epoch has its own order. Unless samples are
  // shuffled, sets come one after the other.
  int64_t index(int64_t global_sample) const;

  // Of a mixture: samples drawn from each set before this one, over all epochs.
  std::vector<int64_t> positions(int64_t global_sample) const;
  const MixtureStart& start() const { return start_; }
  void begin(MixtureStart start);

 private:
  std::vector<DatasetPart> parts_;
  int64_t num_samples_ = 0;
  bool shuffle_;
  uint64_t seed_;
  std::optional<MixtureOrder> order_;
  MixtureStart start_;
};

}  // namespace tandem
