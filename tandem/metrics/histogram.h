// How the values of a tensor are spread: counts in buckets whose limits grow by a tenth, as TensorBoard has
// them. The bucket of a value depends on the value alone, so that counts of parts can be added up.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>

namespace tandem {

struct Histogram {
  Histogram() = default;
  explicit Histogram(std::string its_name) : name(std::move(its_name)) {}

  std::string name;  // "weights/block0/attention/qkv"
  double min = 0, max = 0, sum = 0, sum_squares = 0;
  int64_t num = 0;                // finite values
  int64_t not_finite = 0;         // which are in no bucket
  std::map<int, int64_t> counts;  // by bucket, of those that have any

  void add(std::span<const float> values);
};

// Of buckets in order; the values of one are above the limit of the one before, and not above its own.
inline constexpr int kMostBucket = 777;  // the least is its negative
double bucket_limit(int bucket);
int bucket_of(double value);

}  // namespace tandem
