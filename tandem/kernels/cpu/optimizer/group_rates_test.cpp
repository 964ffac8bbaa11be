// Parameters whose learning rate and weight decay are multiples of the others'.
#include <gtest/gtest.h>

#include <cmath>

#include "tandem/kernels/cpu/optimizer/optimizer_setting_test.h"
#include "tandem/kernels/cpu/pointwise/pointwise_test.h"
#include "tandem/kernels/cpu/ref/ref_kernel_run_test.h"

namespace tandem::cpu {
namespace {

constexpr int64_t kElems = 1000;

// A step on two parameters, with the factors (1, 1) and (lr, decay), or on one of them alone.
KernelRun update(const OptimizerSetting& setting, const Attrs& more, double lr, double decay,
                 const std::vector<uint64_t>& seeds) {
  Attrs attrs = more;
  attrs.set("masters", int64_t{setting.masters});
  attrs.set("decay", seeds.size() == 2 ? "1,1" : "1");
  if (setting.reads_sums()) attrs.set("slots", slots_text(seeds.size(), /*one_parameter=*/true));
  KernelRun run(setting.op, attrs);
  std::vector<double> hyper = hyper_values(setting.op);
  hyper[kHyperLr] *= lr;
  hyper[kHyperDecay] *= decay;
  run.in(DType::F32, {static_cast<int64_t>(hyper.size())}, hyper);
  run.in({2}, {2.5, 1.0});
  if (setting.reads_sums()) run.in({2}, sums_values(1));
  for (uint64_t seed : seeds) {
    run.random_in(setting.weight, {kElems}, seed).random_in(setting.gradient, {kElems}, seed + 1);
    for (size_t i = 0; i < setting.num_states(); ++i)
      run.in(DType::F32, {kElems}, std::vector<double>(kElems, 0.25));
    if (setting.halves()) run.random_in(DType::I16, {kElems}, seed, 4000);
    if (setting.masters && !setting.halves()) run.random_in(DType::F32, {kElems}, seed);
  }
  for (size_t i = 0; i < setting.group_size() * seeds.size(); ++i) run.in_place_out();
  return run;
}

TEST(GroupRates, AreThoseOfAStepWithThisRateAndThisDecay) {
  const Attrs rates{{"rates", "1,1;0.5,4"}, {"rate", "0,1"}};
  for (const OptimizerSetting& setting : optimizer_settings()) {
    SCOPED_TRACE(setting.name());
    KernelRun both = update(setting, rates, 1, 1, {1, 9});
    KernelRun plain = update(setting, {}, 1, 1, {1}), other = update(setting, {}, 0.5, 4, {9});
    KernelRun expected = both;
    both.run(all_kernels(), setting.kernel());
    plain.run(all_kernels(), setting.kernel());
    other.run(all_kernels(), setting.kernel());
    const int each = static_cast<int>(setting.group_size());
    for (int i = 0; i < each; ++i) {
      EXPECT_EQ(both.result_bytes(i), plain.result_bytes(i)) << i;
      EXPECT_EQ(both.result_bytes(each + i), other.result_bytes(i)) << i;
    }
    EXPECT_NE(plain.result_bytes(0), other.result_bytes(0));
    if (setting.weight != DType::F32) continue;
    expected.run_reference();
    for (int i = 0; i < 2 * each; ++i) expect_near(both.result(i), expected.result(i), 1e-6);
  }
}

TEST(GroupRates, Are20StepsOfAdamWInDouble) {
  const double kLr = 0.01, kDecay = 0.1, kBeta1 = 0.9, kBeta2 = 0.95, kEps = 1e-8;
  const double kLrFactor = 0.3, kDecayFactor = 2;
  std::vector<double> w = {0.5, -1.5, 2}, m(3), v(3), want = w, mean(3), square(3);
  for (int step = 1; step <= 20; ++step) {
    std::vector<double> g;
    for (size_t i = 0; i < w.size(); ++i) g.push_back(std::sin(static_cast<double>(i + 1) * step));
    KernelRun run(Op::AdamW,
                  {{"masters", int64_t{0}}, {"decay", "1"}, {"rates", "1,1;0.3,2"}, {"rate", "1"}});
    run.in(DType::F32, {10}, {kLr, kDecay, static_cast<double>(step), 1, 0, 0, 0, kBeta1, kBeta2, kEps});
    run.in({2}, {1, 1});
    for (const std::vector<double>* tensor : {&w, &g, &m, &v}) run.in(DType::F32, {3}, *tensor);
    for (int i = 0; i < 4; ++i) run.in_place_out();
    run.run(all_kernels(), "cpu.adamw");
    w = run.result(0);
    m = run.result(2);
    v = run.result(3);
    for (size_t i = 0; i < w.size(); ++i) {
      mean[i] = kBeta1 * mean[i] + (1 - kBeta1) * g[i];
      square[i] = kBeta2 * square[i] + (1 - kBeta2) * g[i] * g[i];
      const double lr = kLr * kLrFactor, decay = kDecay * kDecayFactor;
      want[i] -= lr * decay * want[i];
      want[i] -= lr * (mean[i] / (1 - std::pow(kBeta1, step))) /
                 (std::sqrt(square[i] / (1 - std::pow(kBeta2, step))) + kEps);
    }
  }
  expect_near(w, want, 1e-6);
}

}  // namespace
}  // namespace tandem::cpu
