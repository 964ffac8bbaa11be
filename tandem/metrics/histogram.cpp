#include "tandem/metrics/histogram.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace tandem {
namespace {

constexpr double kLeast = 1e-12, kFactor = 1.1;
constexpr int kLimits = kMostBucket;  // the last is above 1e20

const std::array<double, kLimits>& limits() {
  static const std::array<double, kLimits> table = [] {
    std::array<double, kLimits> values{};
    double value = kLeast;
    for (double& limit : values) {
      limit = value;
      value *= kFactor;
    }
    return values;
  }();
  return table;
}

// The first limit that is not below it.
int index_of(double magnitude) {
  const auto& table = limits();
  return static_cast<int>(std::lower_bound(table.begin(), table.end(), magnitude) - table.begin());
}

}  // namespace

// Negative values have the mirrored limits, in buckets below 0. Bucket 0 is what lies between the least
// limits.
int bucket_of(double value) {
  if (value >= 0) return index_of(value);
  // Buckets are closed above: -limit itself belongs to the bucket that ends there.
  const auto& table = limits();
  return -static_cast<int>(std::upper_bound(table.begin(), table.end(), -value) - table.begin());
}

double bucket_limit(int bucket) {
  if (bucket >= kLimits) return std::numeric_limits<double>::max();
  if (bucket >= 0) return limits()[static_cast<size_t>(bucket)];
  if (bucket < -kLimits) return -std::numeric_limits<double>::max();
  return -limits()[static_cast<size_t>(-bucket - 1)];
}

void Histogram::add(std::span<const float> values) {
  std::array<int64_t, 2 * kMostBucket + 1> found{};
  for (const float value : values) {
    if (!std::isfinite(value)) {
      ++not_finite;
      continue;
    }
    min = num == 0 ? value : std::min(min, double{value});
    max = num == 0 ? value : std::max(max, double{value});
    sum += value;
    sum_squares += double{value} * value;
    ++num;
    ++found[static_cast<size_t>(bucket_of(value) + kMostBucket)];
  }
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i] > 0) counts[static_cast<int>(i) - kMostBucket] += found[i];
  }
}

}  // namespace tandem
