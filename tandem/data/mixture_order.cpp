#include "tandem/data/mixture_order.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tandem/base/error.h"
#include "tandem/base/rng.h"

namespace tandem {
namespace {

// All in whole numbers: every machine has the same order.
constexpr int kTimeBits = 16;   // of time to a sample
constexpr int kShareBits = 32;  // of a share
constexpr int kPlaceBits = kTimeBits + kShareBits;
using Wide = unsigned __int128;

}  // namespace

MixtureOrder::MixtureOrder(std::span<const double> weights, uint64_t seed) {
  TANDEM_CHECK(!weights.empty() && weights.size() < (size_t{1} << 16));
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  constexpr auto kWhole = uint64_t{1} << kShareBits;
  uint64_t given = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    TANDEM_CHECK(weights[i] > 0);
    const double share = std::floor(weights[i] / total * static_cast<double>(kWhole));
    shares_.push_back(std::max<uint64_t>(1, static_cast<uint64_t>(share)));
    given += shares_.back();
    seeds_.push_back(mix_bits(seed ^ mix_bits(hash_name("mixture") + i)));
  }
  *std::max_element(shares_.begin(), shares_.end()) += kWhole - given;  // what rounding has left or taken
}

// A set's draw j lies somewhere in stretch j of its own time.
uint64_t MixtureOrder::draws_until(size_t set, uint64_t time) const {
  const Wide own_time = Wide{time} * shares_[set];
  const auto whole = static_cast<uint64_t>(own_time >> kPlaceBits);
  const uint64_t place = static_cast<uint64_t>(own_time) & ((uint64_t{1} << kPlaceBits) - 1);
  return whole + (place >= mix_bits(seeds_[set] + whole) >> (64 - kPlaceBits) ? 1 : 0);
}

// The first time until which there are more draws than `sample`.
uint64_t MixtureOrder::time_of(int64_t sample) const {
  const auto number = static_cast<uint64_t>(sample), sets = static_cast<uint64_t>(shares_.size());
  uint64_t low = (number > sets ? number - sets : 0) << kTimeBits, high = (number + 1 + sets) << kTimeBits;
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    uint64_t draws = 0;
    for (size_t set = 0; set < shares_.size(); ++set) draws += draws_until(set, middle);
    if (draws > number) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

std::vector<int64_t> MixtureOrder::counts(int64_t samples) const {
  const uint64_t time = time_of(samples);
  std::vector<int64_t> counts(shares_.size());
  int64_t left = samples;
  for (size_t set = 0; set < counts.size(); ++set) {
    counts[set] = time == 0 ? 0 : static_cast<int64_t>(draws_until(set, time - 1));
    left -= counts[set];
  }
  for (size_t set = 0; set < counts.size() && left > 0; ++set) {  // those of the same time, set by set
    const int64_t more = std::min(left, static_cast<int64_t>(draws_until(set, time)) - counts[set]);
    counts[set] += more;
    left -= more;
  }
  return counts;
}

MixtureOrder::Draw MixtureOrder::operator()(int64_t sample) const {
  TANDEM_CHECK(sample >= 0);
  const std::vector<int64_t> before = counts(sample);
  const uint64_t time = time_of(sample);
  for (size_t set = 0; set < before.size(); ++set) {
    if (static_cast<int64_t>(draws_until(set, time)) > before[set]) return {set, before[set]};
  }
  fail_check(__FILE__, __LINE__, "a sample is drawn from a set", "");
}

}  // namespace tandem
