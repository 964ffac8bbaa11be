#include "tandem/metrics/histogram.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tandem {
namespace {

TEST(Histogram, ABucketHoldsWhatIsAboveTheOneBeforeItAndNotAboveItself) {
  for (const double value :
       {0.0, 1e-13, -1e-13, 1e-12, -1e-12, 0.5, -0.5, 1.0, -1.0, 3e19, -3e19, 1e30, -1e30}) {
    const int bucket = bucket_of(value);
    EXPECT_LE(value, bucket_limit(bucket)) << value;
    EXPECT_TRUE(value < -1e20 || value > bucket_limit(bucket - 1)) << value;
  }
  for (int bucket = -kMostBucket; bucket < kMostBucket; ++bucket) {
    EXPECT_LT(bucket_limit(bucket), bucket_limit(bucket + 1)) << bucket;
    EXPECT_EQ(bucket_of(bucket_limit(bucket)), bucket);
  }
}

TEST(Histogram, CountsEveryValueOnce) {
  Histogram histogram;
  const float values[] = {1, -1, 0, 2, 2, std::numeric_limits<float>::infinity(), std::nanf("")};
  histogram.add(values);
  EXPECT_EQ(histogram.num, 5);
  EXPECT_EQ(histogram.not_finite, 2);
  EXPECT_EQ(histogram.min, -1);
  EXPECT_EQ(histogram.max, 2);
  EXPECT_EQ(histogram.sum, 4);
  EXPECT_EQ(histogram.sum_squares, 10);
  EXPECT_EQ(histogram.counts.at(bucket_of(2)), 2);
  int64_t total = 0;
  for (const auto& [bucket, count] : histogram.counts) total += count;
  EXPECT_EQ(total, 5);
}

}  // namespace
}  // namespace tandem
