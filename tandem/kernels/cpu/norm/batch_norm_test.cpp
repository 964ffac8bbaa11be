#include <gtest/gtest.h>

#include "tandem/base/rng.h"
#include "tandem/kernels/cpu/conv/image_kernels_test.h"

namespace tandem::cpu {
namespace {

const std::vector<Shape> kShapes = {{3, 7, 5, 1},  {2, 8, 8, 3},    {4, 1, 1, 5},     {2, 7, 5, 16},
                                    {1, 8, 8, 33}, {5, 40, 30, 16}, {300, 1, 1, 100}, {1, 1, 1, 4}};

KernelRun forward(const Shape& x, DType dtype) {
  const Shape c{x.last()};
  KernelRun run(Op::BatchNorm, {{"eps", 1e-5}, {"momentum", 0.1}});
  run.random_in(dtype, x, 1, 2).random_in(dtype, c, 2).random_in(dtype, c, 3);
  run.random_in(DType::F32, c, 4).in(DType::F32, c, std::vector<double>(static_cast<size_t>(x.last()), 1.5));
  run.out(dtype, x).out(DType::F32, c).out(DType::F32, c).in_place_out().in_place_out();
  return run;
}

KernelRun infer(const Shape& x, DType dtype) {
  const Shape c{x.last()};
  KernelRun run(Op::BatchNormInfer, {{"eps", 1e-5}});
  run.random_in(dtype, x, 1, 2).random_in(dtype, c, 2).random_in(dtype, c, 3);
  run.random_in(DType::F32, c, 4).in(DType::F32, c, std::vector<double>(static_cast<size_t>(x.last()), 1.5));
  run.out(dtype, x);
  return run;
}

KernelRun backward(const Shape& x, DType dtype) {
  const Shape c{x.last()};
  KernelRun run(Op::BatchNormGrad);
  run.random_in(dtype, x, 1).random_in(dtype, x, 2).random_in(dtype, c, 3).random_in(DType::F32, c, 4, 0.1);
  run.in(DType::F32, c, std::vector<double>(static_cast<size_t>(x.last()), 0.8));
  run.random_in(DType::F32, c, 5).random_in(DType::F32, c, 6);
  run.out(dtype, x).in_place_out().in_place_out();
  return run;
}

class BatchNorm : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Storage, BatchNorm, testing::Values(DType::F32, DType::BF16, DType::F16),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

TEST_P(BatchNorm, MatchesReferenceForAnyNumberOfThreads) {
  for (const Shape& x : kShapes) {
    SCOPED_TRACE(to_string(x));
    expect_matches_reference(forward(x, GetParam()), "cpu.batch_norm", storage_tolerance(GetParam()));
    expect_matches_reference(infer(x, GetParam()), "cpu.batch_norm_infer", storage_tolerance(GetParam()));
    expect_matches_reference(backward(x, GetParam()), "cpu.batch_norm_grad", storage_tolerance(GetParam()));
  }
}

TEST(BatchNorm, KeepsTheVarianceOfValuesFarFromZero) {
  const Shape x{64, 8, 8, 20};
  std::vector<double> values(static_cast<size_t>(x.elems()));
  const Rng rng(7, 0);
  for (size_t i = 0; i < values.size(); ++i) values[i] = 4096 + rng.uniform(i);
  const std::vector<double> ones(20, 1), zeros(20, 0);
  KernelRun run(Op::BatchNorm, {{"eps", 1e-5}, {"momentum", 0.1}});
  run.in(DType::F32, x, values).in(DType::F32, {20}, ones).in(DType::F32, {20}, zeros);
  run.in(DType::F32, {20}, zeros).in(DType::F32, {20}, ones);
  run.out(DType::F32, x).out(DType::F32, {20}).out(DType::F32, {20}).in_place_out().in_place_out();
  KernelRun reference = run;
  reference.run_reference();
  run.run(all_kernels(), "cpu.batch_norm", 2);
  expect_near(run.result(2), reference.result(2), 1e-5);
  expect_near(run.result(0), reference.result(0), 2e-3);  // the mean itself is rounded to fp32: 2^-12
}

}  // namespace
}  // namespace tandem::cpu
