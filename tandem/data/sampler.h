// Which sample comes when. Samples are numbered globally, 0, 1, 2, ... across epochs and ranks, so that a
// position in the data is one integer, exact in a checkpoint and the same for every world size.
#pragma once

#include <cstdint>

#include "tandem/base/rng.h"
#include "tandem/data/permutation.h"

namespace tandem {

class Sampler {
 public:
  Sampler(int64_t num_samples, bool shuffle, uint64_t seed)
      : num_samples_(num_samples), shuffle_(shuffle), seed_(mix_bits(seed ^ hash_name("sampler"))) {}

  int64_t epoch(int64_t global_sample) const { return global_sample / num_samples_; }

  // Within an epoch every index occurs once; each epoch has its own order.
  int64_t index(int64_t global_sample) const {
    const int64_t place = global_sample % num_samples_;
    if (!shuffle_) return place;
    return Permutation(num_samples_, mix_bits(seed_ + static_cast<uint64_t>(epoch(global_sample))))(place);
  }

 private:
  int64_t num_samples_;
  bool shuffle_;
  uint64_t seed_;
};

}  // namespace tandem
