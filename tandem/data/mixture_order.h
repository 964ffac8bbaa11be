// Which of several sets each sample comes from. Draws of a set are spread over the whole by its weight, one
// in each stretch of equal length, at a place in it that the seed gives: of any number of samples from the
// beginning, a set has its share within one or two, and the order is no pattern. Nothing is stored: the
// sample of any number is found at once, so that a position is one integer, the same for every world size.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tandem {

class MixtureOrder {
 public:
  MixtureOrder(std::span<const double> weights, uint64_t seed);  // all above 0

  struct Draw {
    size_t set = 0;
    int64_t number = 0;  // draws of this set before it
  };
  Draw operator()(int64_t sample) const;
  std::vector<int64_t> counts(int64_t samples) const;  // draws of each set among the first `samples`

 private:
  uint64_t draws_until(size_t set, uint64_t time) const;
  uint64_t time_of(int64_t sample) const;

  std::vector<uint64_t> shares_;  // of 2^32
  std::vector<uint64_t> seeds_;
};

}  // namespace tandem
