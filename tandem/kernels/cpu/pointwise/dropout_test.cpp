#include <gtest/gtest.h>

#include <cmath>

#include "tandem/kernels/cpu/pointwise/pointwise_test.h"
#include "tandem/kernels/cpu/ref/ref_kernel_run_test.h"

namespace tandem::cpu {
namespace {

struct Call {
  int64_t batch = 3, context = 7, width = 21;
  double rate = 0.25;
  int64_t site = 0, seed = 5, sample = 11, first = 0;
};

// Of ones, so that results are 0 or 1 / (1 - rate); or of random numbers.
KernelRun dropout(const Call& call, DType dtype = DType::F32, bool random = false) {
  const Shape shape({call.batch, call.context, call.width});
  KernelRun run(Op::Dropout, {{"rate", call.rate},
                              {"site", call.site},
                              {"rows", call.context},
                              {"first", call.first},
                              {"seed", call.seed}});
  if (random) {
    run.random_in(dtype, shape, 3);
  } else {
    run.in(dtype, shape, std::vector<double>(static_cast<size_t>(shape.elems()), 1));
  }
  run.in(DType::I32, {2},
         {static_cast<double>(call.sample % (int64_t{1} << 32)),
          static_cast<double>(call.sample / (int64_t{1} << 32))});
  run.out(dtype, shape);
  return run;
}

std::vector<double> kept(const Call& call) {
  KernelRun run = dropout(call);
  run.run(all_kernels(), "cpu.dropout");
  return run.result(0);
}

TEST(Dropout, HasTheRatesOfTheConfigWithin3Sigma) {
  for (double rate : {0.01, 0.1, 0.5, 0.9}) {
    const Call call{.batch = 16, .context = 128, .width = 257, .rate = rate};
    const std::vector<double> values = kept(call);
    int64_t dropped = 0;
    for (double value : values) {
      dropped += value == 0 ? 1 : 0;
      ASSERT_TRUE(value == 0 || std::abs(value * (1 - rate) - 1) < 1e-6) << value;
    }
    const auto count = static_cast<double>(values.size());
    EXPECT_NEAR(static_cast<double>(dropped), rate * count, 3 * std::sqrt(count * rate * (1 - rate))) << rate;
  }
}

TEST(Dropout, MatchesTheReferenceForEveryStorageTypeAndAnyNumberOfThreads) {
  for (DType dtype : {DType::F32, DType::BF16, DType::F16}) {
    for (int64_t width : {1, 4, 21, 64}) {
      KernelRun expected = dropout({.width = width}, dtype, true), actual = expected, threads = expected;
      expected.run_reference();
      actual.run(all_kernels(), "cpu.dropout");
      threads.run(all_kernels(), "cpu.dropout", 3);
      EXPECT_EQ(actual.result_bytes(0), threads.result_bytes(0));
      expect_near(actual.result(0), expected.result(0), dtype == DType::F32 ? 1e-6 : 1e-2);
    }
  }
}

TEST(Dropout, GoesBySampleNotByWhereItLies) {
  const Call both{.batch = 2};
  Call second{.batch = 1};
  second.sample = both.sample + 1;
  const std::vector<double> whole = kept(both), part = kept(second);
  EXPECT_EQ(std::vector<double>(whole.begin() + 7 * 21, whole.end()), part);
  // The rows from the fifth on, as a rank of the tensor axis has them.
  Call rows{.batch = 1, .context = 9};
  rows.first = 5;
  KernelRun run = dropout(rows);
  const Call all{.batch = 2, .context = 9};
  const std::vector<double> from_fifth = kept(rows), every = kept(all);
  EXPECT_TRUE(std::equal(from_fifth.begin(), from_fifth.end(), every.begin() + 5 * 21));
}

TEST(Dropout, DiffersWithSeedSiteAndSample) {
  const std::vector<double> plain = kept({});
  Call call;
  call.seed = 6;
  EXPECT_NE(plain, kept(call));
  call = {};
  call.site = 1;
  EXPECT_NE(plain, kept(call));
  call = {};
  call.sample = 12;
  EXPECT_NE(plain, kept(call));
  EXPECT_EQ(plain, kept({}));
}

}  // namespace
}  // namespace tandem::cpu
