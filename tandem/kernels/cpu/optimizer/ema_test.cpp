#include <gtest/gtest.h>

#include <cmath>

#include "tandem/base/split_float.h"
#include "tandem/kernels/cpu/pointwise/pointwise_test.h"
#include "tandem/kernels/cpu/ref/ref_kernel_run_test.h"

namespace tandem::cpu {
namespace {

constexpr int64_t kHyperSlots = 8;

KernelRun average(double decay, double count, bool finite, const std::vector<double>& ema) {
  KernelRun run(Op::Ema, {{"decay", decay}, {"masters", int64_t{0}}});
  std::vector<double> hyper(kHyperSlots);
  hyper[kHyperStep] = count;
  run.in(DType::F32, {kHyperSlots}, hyper).in({2}, {1, finite ? 1.0 : 0.0});
  run.in(DType::F32, {static_cast<int64_t>(ema.size())}, ema);
  return run;
}

TEST(Ema, Is20StepsInDouble) {
  const double decay = 0.9;
  std::vector<double> ema = {7, 7, 7}, want = ema;
  for (int step = 1; step <= 20; ++step) {
    std::vector<double> w;
    for (size_t i = 0; i < ema.size(); ++i) w.push_back(std::cos(static_cast<double>(i) + 0.3 * step));
    KernelRun run = average(decay, step, true, ema);
    run.in(DType::F32, {3}, w).in_place_out();
    KernelRun reference = run;
    run.run(all_kernels(), "cpu.ema");
    reference.run_reference();
    expect_near(run.result(0), reference.result(0), 1e-6);
    ema = run.result(0);
    for (size_t i = 0; i < w.size(); ++i) want[i] = step == 1 ? w[i] : decay * want[i] + (1 - decay) * w[i];
  }
  expect_near(ema, want, 1e-6);
}

TEST(Ema, StaysWhereAnUpdateWasSkipped) {
  const std::vector<double> ema = {1, 2, 3};
  KernelRun run = average(0.9, 1, false, ema);
  run.in(DType::F32, {3}, {4, 5, 6}).in_place_out();
  run.run(all_kernels(), "cpu.ema");
  EXPECT_EQ(run.result(0), ema);
}

TEST(Ema, IsOfTheMasters) {
  const int64_t n = 5000;
  for (DType dtype : {DType::BF16, DType::F16}) {
    KernelRun run(Op::Ema, {{"decay", 0.5}, {"masters", int64_t{1}}});
    std::vector<double> hyper(kHyperSlots, 2);
    run.in(DType::F32, {kHyperSlots}, hyper).in({2}, {1, 1}).random_in(DType::F32, {n}, 1);
    run.random_in(dtype, {n}, 2).random_in(master_dtype(dtype), {n}, 3, dtype == DType::BF16 ? 4000 : 1);
    run.in_place_out();
    KernelRun expected = run, threads = run;
    run.run(all_kernels(), "cpu.ema");
    threads.run(all_kernels(), "cpu.ema", 3);
    expected.run_reference();
    EXPECT_EQ(run.result_bytes(0), threads.result_bytes(0));
    expect_near(run.result(0), expected.result(0), 1e-6);
  }
}

KernelRun exchange(DType dtype) {
  return KernelRun(Op::ExchangeWeights, {{"masters", int64_t{is_half(dtype)}}});
}
int num_places(DType dtype) { return is_half(dtype) ? 3 : 2; }

// What it has made, exchanged again.
KernelRun exchanged_again(DType dtype, const KernelRun& run) {
  KernelRun again = exchange(dtype);
  const DType types[] = {dtype, DType::F32, master_dtype(dtype)};
  for (int i = 0; i < num_places(dtype); ++i)
    again.in(types[i], {static_cast<int64_t>(run.result(i).size())}, run.result(i)).in_place_out();
  again.run(all_kernels(), "cpu.exchange_weights");
  return again;
}

TEST(ExchangeWeights, GivesEveryBitBack) {
  const int64_t n = 5000;
  for (DType dtype : {DType::F32, DType::BF16, DType::F16}) {
    KernelRun run = exchange(dtype);
    run.random_in(dtype, {n}, 2).random_in(DType::F32, {n}, 1);
    if (is_half(dtype)) run.random_in(master_dtype(dtype), {n}, 3, dtype == DType::BF16 ? 4000 : 1);
    for (int i = 0; i < num_places(dtype); ++i) run.in_place_out();
    KernelRun expected = run;
    run.run(all_kernels(), "cpu.exchange_weights", 3);
    expected.run_reference();
    const KernelRun back = exchanged_again(dtype, run), there = exchanged_again(dtype, back);
    for (int i = 0; i < num_places(dtype); ++i) {
      EXPECT_EQ(run.result_bytes(i), expected.result_bytes(i)) << dtype_name(dtype) << i;
      EXPECT_EQ(there.result_bytes(i), run.result_bytes(i)) << dtype_name(dtype) << i;
      EXPECT_NE(back.result_bytes(i), run.result_bytes(i)) << dtype_name(dtype) << i;
    }
  }
}

}  // namespace
}  // namespace tandem::cpu
