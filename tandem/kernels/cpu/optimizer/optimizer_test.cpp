#include <gtest/gtest.h>

#include <cmath>

#include "tandem/base/split_float.h"
#include "tandem/kernels/cpu/optimizer/optimizer_chunks.h"
#include "tandem/kernels/cpu/pointwise/pointwise_test.h"
#include "tandem/kernels/cpu/ref/ref_kernel_run_test.h"
#include "tandem/runtime/optimizer_step.h"

namespace tandem::cpu {
namespace {

// Sizes around a vector and around a chunk.
const std::vector<int64_t> kSizes = {1, 15, 16, 1000, kOptimizerChunk, kOptimizerChunk + 5};

struct Setting {
  Op op;
  DType weight, gradient;
  bool masters;
  std::string name() const {
    return fmt::format("{} w {} g {} masters {}", op_name(op), dtype_name(weight), dtype_name(gradient),
                       masters);
  }
  bool halves() const { return masters && weight == DType::BF16; }
  std::string kernel() const { return "cpu." + std::string(op_name(op)); }
};

std::vector<Setting> all_settings() {
  std::vector<Setting> settings;
  for (Op op : {Op::AdamW, Op::Sgd}) {
    for (DType weight : {DType::F32, DType::BF16, DType::F16}) {
      for (bool masters : {false, true}) {
        settings.push_back({op, weight, DType::F32, masters});
        if (weight != DType::F32) settings.push_back({op, weight, weight, masters});
      }
    }
  }
  return settings;
}

// {lr, beta1, beta2, eps, decay, step, 1 / loss scale, clip}, with a norm that makes clipping happen
constexpr float kHyper[kHyperSlots] = {0.01f, 0.9f, 0.95f, 1e-8f, 0.1f, 3, 0.5f, 2};
constexpr double kNorm = 2.5;

KernelRun update(const Setting& setting, bool finite = true, bool keep = false) {
  std::string decay;
  for (size_t i = 0; i < kSizes.size(); ++i) decay += i == 0 ? "1" : i % 2 == 0 ? ",1" : ",0";
  KernelRun run(setting.op, {{"masters", setting.masters ? 1 : 0}, {"decay", decay}, {"keep", keep ? 1 : 0}});
  run.in(DType::F32, {kHyperSlots}, {std::begin(kHyper), std::end(kHyper)});
  run.in({2}, {kNorm, finite ? 1.0 : 0.0});
  uint64_t seed = 1;
  for (int64_t n : kSizes) {
    run.random_in(setting.weight, {n}, seed).random_in(setting.gradient, {n}, seed + 1);
    run.random_in(DType::F32, {n}, seed + 2, 0.1);
    if (setting.op == Op::AdamW) run.in(DType::F32, {n}, std::vector<double>(static_cast<size_t>(n), 0.25));
    if (setting.halves()) run.random_in(DType::I16, {n}, seed, 4000);
    if (setting.masters && !setting.halves()) run.random_in(DType::F32, {n}, seed);
    seed += 4;
  }
  const size_t per_param = (setting.op == Op::AdamW ? 4 : 3) + (setting.masters ? 1 : 0);
  for (size_t i = 0; i < per_param * kSizes.size(); ++i) run.in_place_out();
  return run;
}

// The numbers whose halves are outputs `high` and `low`.
std::vector<double> joined(const KernelRun& run, int high, int low) {
  std::vector<float> floats(run.result_bytes(high).size() / 2);
  join_floats(run.result_bytes(high), run.result_bytes(low), std::as_writable_bytes(std::span(floats)));
  return {floats.begin(), floats.end()};
}

TEST(OptimizerKernels, MatchTheReferenceForEveryStorageType) {
  for (const Setting& setting : all_settings()) {
    SCOPED_TRACE(setting.name());
    KernelRun expected = update(setting), actual = expected;
    expected.run_reference();
    actual.run(all_kernels(), setting.kernel());
    const int per_param = expected.num_results() / static_cast<int>(kSizes.size());
    for (int i = 0; i < expected.num_results(); ++i) {
      SCOPED_TRACE(i);
      if (setting.halves() && (i + 1) % per_param == 0) {
        const int weight = i + 1 - per_param;
        expect_near(joined(actual, weight, i), joined(expected, weight, i), 1e-6);
        continue;
      }
      // Where two nearly equal weights round apart, they differ by one last place of w's type.
      const double rounding = setting.weight == DType::BF16  ? 8e-3
                              : setting.weight == DType::F16 ? 1e-3
                                                             : 1e-6;
      expect_near(actual.result(i), expected.result(i), i % per_param == 0 ? rounding : 1e-6);
    }
  }
}

TEST(OptimizerKernels, LeaveGradientsThatAreKept) {
  for (const Setting& setting : all_settings()) {
    for (bool finite : {true, false}) {
      KernelRun kept = update(setting, finite, true), zeroed = update(setting, finite);
      KernelRun expected = kept;
      kept.run(all_kernels(), setting.kernel());
      zeroed.run(all_kernels(), setting.kernel());
      expected.run_reference();
      const int per_param = kept.num_results() / static_cast<int>(kSizes.size());
      for (int i = 0; i < kept.num_results(); ++i) {
        const bool is_gradient = i % per_param == 1;
        EXPECT_EQ(kept.result_bytes(i), (is_gradient ? expected : zeroed).result_bytes(i)) << setting.name();
      }
    }
  }
}

// One element, spelled out as tandem/runtime/optimizer_step.h says it.
float updated_weight(Op op, const OptimizerStep& step, bool decayed, float w, float g, float& m, float& v) {
  g *= step.grad_factor;
  if (op == Op::Sgd) {
    m = step.beta1 * m + ((decayed ? step.decay : 0) * w + g);
    return w - step.lr * m;
  }
  m = step.beta1 * m + step.rest1 * g;
  v = step.beta2 * v + step.rest2 * (g * g);
  return w * (decayed ? step.keep : 1) - (step.rate * m) / (std::sqrt(v) * step.root_scale + step.eps);
}

// Values of all magnitudes, subnormal ones too.
HostTensor spread_tensor(DType dtype, int64_t elems, uint64_t stream) {
  HostTensor tensor = random_tensor(dtype, {elems}, stream);
  const Rng rng(13, stream);
  const bool is_f16 = dtype == DType::F16;
  for (int64_t i = 0; i < elems; ++i) {
    const uint64_t power = rng.below(static_cast<uint64_t>(i), is_f16 ? 36 : 250);
    ref::set(tensor.arg(), i, std::ldexp(tensor.at(i), static_cast<int>(power) - (is_f16 ? 24 : 148)));
  }
  return tensor;
}

// One parameter's tensors: w, g, m, [v,] [master].
std::vector<HostTensor> spread_parameter(const Setting& setting, int64_t elems) {
  std::vector<HostTensor> tensors = {spread_tensor(setting.weight, elems, 1),
                                     spread_tensor(setting.gradient, elems, 2),
                                     spread_tensor(DType::F32, elems, 3)};
  if (setting.op == Op::AdamW) {
    tensors.push_back(spread_tensor(DType::F32, elems, 4));
    for (int64_t i = 0; i < elems; ++i) ref::set(tensors[3].arg(), i, std::abs(tensors[3].at(i)));
  }
  if (setting.halves()) {
    tensors.push_back(random_tensor(DType::I16, {elems}, 5, 4000));
  } else if (setting.masters) {
    tensors.push_back(spread_tensor(DType::F32, elems, 5));
  }
  return tensors;
}

std::vector<HostTensor> spelled_out(const Setting& setting, const OptimizerStep& step, bool decayed,
                                    std::vector<HostTensor> tensors) {
  const TensorArg w = tensors[0].arg(), g = tensors[1].arg();
  const TensorArg master = tensors.back().arg(), weight = setting.masters ? master : w;
  for (int64_t i = 0; i < w.elems(); ++i) {
    float no_v = 0, &m = tensors[2].arg().as<float>()[i];
    float& v = setting.op == Op::AdamW ? tensors[3].arg().as<float>()[i] : no_v;
    const float old = setting.halves() ? join_float({w.as<BFloat16>()[i].bits, master.as<int16_t>()[i]})
                                       : static_cast<float>(ref::get(weight, i));
    const float updated =
        updated_weight(setting.op, step, decayed, old, static_cast<float>(ref::get(g, i)), m, v);
    if (setting.halves()) {
      const SplitFloat halves = split_float(updated);
      w.as<BFloat16>()[i].bits = halves.high;
      master.as<int16_t>()[i] = halves.low;
    } else {
      ref::set(weight, i, static_cast<double>(updated));
      ref::set(w, i, static_cast<double>(updated));
    }
    ref::set(g, i, 0);
  }
  return tensors;
}

TEST(OptimizerKernels, HaveTheBitsThatAreSpelledOutOnEveryTarget) {
  const KernelRegistry registry = all_kernels();
  HostTensor hyper(DType::F32, {kHyperSlots}), norm(DType::F64, {2});
  std::memcpy(hyper.bytes.data(), kHyper, sizeof kHyper);
  ref::set(norm.arg(), 0, kNorm);
  ref::set(norm.arg(), 1, 1);
  const OptimizerStep step = optimizer_step(hyper.arg().as<float>(), norm.arg().as<double>());
  for (const Setting& setting : all_settings()) {
    for (const bool decayed : {false, true}) {
      const std::vector<HostTensor> tensors = spread_parameter(setting, 10007);
      Call call{setting.op, {hyper, norm}, {}, {}, {{"masters", int64_t{setting.masters}}}};
      call.attrs.set("decay", std::string(decayed ? "1" : "0"));
      for (const HostTensor& tensor : tensors) {
        call.out.push_back(tensor.type);
        call.shares.push_back(static_cast<int>(call.in.size()));
        call.in.push_back(tensor);
      }
      const std::vector<HostTensor> expected = spelled_out(setting, step, decayed, tensors);
      for_each_target([&] {
        EXPECT_TRUE(run(registry.by_name(setting.kernel()), call, pool_of(1)) == expected) << setting.name();
      });
    }
  }
}

TEST(OptimizerStep, HasTheBiasCorrectionsOfItsCount) {
  const double norm[2] = {1, 1};
  for (const double count : {1, 2, 3, 10, 1000, 12345, 1 << 24}) {
    float hyper[kHyperSlots] = {};
    std::copy_n(kHyper, kHyperSlots, hyper);
    hyper[kHyperStep] = static_cast<float>(count);
    const OptimizerStep step = optimizer_step(hyper, norm);
    const double beta1 = hyper[kHyperBeta1], beta2 = hyper[kHyperBeta2];
    EXPECT_FLOAT_EQ(step.rate, static_cast<float>(hyper[kHyperLr] / (1 - std::pow(beta1, count))));
    EXPECT_FLOAT_EQ(step.root_scale, static_cast<float>(1 / std::sqrt(1 - std::pow(beta2, count))));
    EXPECT_EQ(step.grad_factor, 0.5f);  // the norm is below the clip
  }
}

TEST(OptimizerKernels, ZeroTheGradients) {
  for (const Setting& setting : all_settings()) {
    for (bool finite : {true, false}) {
      KernelRun run = update(setting, finite);
      run.run(all_kernels(), setting.kernel());
      const int per_param = run.num_results() / static_cast<int>(kSizes.size());
      for (int i = 1; i < run.num_results(); i += per_param) {
        for (std::byte byte : run.result_bytes(i)) ASSERT_EQ(byte, std::byte{0}) << setting.name();
      }
    }
  }
}

TEST(OptimizerKernels, ChangeNothingElseWhenTheNormIsNotFinite) {
  for (const Setting& setting : all_settings()) {
    KernelRun expected = update(setting, false), actual = expected;
    expected.run_reference();
    actual.run(all_kernels(), setting.kernel());
    for (int i = 0; i < expected.num_results(); ++i) {
      EXPECT_EQ(actual.result_bytes(i), expected.result_bytes(i)) << setting.name();
    }
  }
}

TEST(OptimizerKernels, HaveTheSameBitsForAnyThreadCount) {
  for (const Setting& setting : all_settings()) {
    KernelRun one = update(setting), many = one;
    one.run(all_kernels(), setting.kernel(), 1);
    for (int threads : {2, 4}) {
      many.run(all_kernels(), setting.kernel(), threads);
      for (int i = 0; i < one.num_results(); ++i) {
        ASSERT_EQ(many.result_bytes(i), one.result_bytes(i)) << setting.name() << " threads " << threads;
      }
    }
  }
}

TEST(OptimizerKernels, RoundTheMasterToTheWeight) {
  const Setting setting{Op::AdamW, DType::F16, DType::F32, true};
  KernelRun run = update(setting);
  run.run(all_kernels(), setting.kernel());
  for (int param = 0; param < static_cast<int>(kSizes.size()); ++param) {
    const auto w = run.result(5 * param), master = run.result(5 * param + 4);
    for (size_t i = 0; i < w.size(); ++i) {
      ASSERT_EQ(w[i], to_float(to_half(static_cast<float>(master[i]))));
    }
  }
}

// Numbers that nothing moves come back in the same halves: infinities, subnormals and all that round up.
TEST(OptimizerKernels, KeepTheHalvesOfEveryNumber) {
  constexpr int64_t kElems = 0x10000;
  HostTensor hyper(DType::F32, {kHyperSlots}), norm(DType::F64, {2});
  ref::set(hyper.arg(), kHyperEps, 1);  // no rate, no decay
  ref::set(hyper.arg(), kHyperStep, 1);
  ref::set(norm.arg(), 1, 1);
  const HostTensor zeros(DType::F32, {kElems});
  for (const int low : {-0x8000, -0x7fff, -1, 0, 1, 0x4321, 0x7fff}) {
    HostTensor w(DType::BF16, {kElems}), rest(DType::I16, {kElems});
    for (int64_t i = 0; i < kElems; ++i) {
      w.arg().as<BFloat16>()[i].bits = static_cast<uint16_t>(i);
      ref::set(rest.arg(), i, low);
    }
    Call call{Op::AdamW, {hyper, norm, w, zeros, zeros, zeros, rest}, {}, {2, 3, 4, 5, 6}, {}};
    for (size_t i = 2; i < call.in.size(); ++i) call.out.push_back(call.in[i].type);
    call.attrs = {{"masters", int64_t{1}}, {"decay", "0"}};
    for_each_target([&] {
      std::vector<HostTensor> out = run(all_kernels().by_name("cpu.adamw"), call, pool_of(1));
      for (int64_t i = 0; i < kElems; ++i) {
        const SplitFloat before{static_cast<uint16_t>(i), static_cast<int16_t>(low)};
        const SplitFloat after{out[0].arg().as<BFloat16>()[i].bits, out[4].arg().as<int16_t>()[i]};
        const bool stays_nan = std::isnan(join_float(after)) && std::isnan(to_float(BFloat16{after.high}));
        ASSERT_TRUE(std::isnan(join_float(before)) ? stays_nan : join_bits(after) == join_bits(before)) << i;
      }
    });
  }
}

// Two pieces a slot, three statistics.
KernelRun square_sums(DType dtype, double deviation) {
  KernelRun run(Op::SquareSums, {{"slots", "0,0,1,1,2,2,4"}, {"num_slots", 5}});
  run.in(DType::F32, {8}, {0, 0, 0, 0, 0, 1, 0.25, 0}).in({3}, {7, 8, 9});
  for (size_t i = 0; i < kSizes.size(); ++i) run.random_in(dtype, {kSizes[i]}, i, deviation);
  run.in(dtype, {0}, {}).out({5 + 1 + 3});
  return run;
}

TEST(SquareSums, MatchesTheReferenceAndDoesNotOverflow) {
  for (DType dtype : {DType::F32, DType::BF16, DType::F16}) {
    for (double deviation : {1e-3, 1.0, dtype == DType::F16 ? 100.0 : 1e30}) {
      SCOPED_TRACE(fmt::format("{} {}", dtype_name(dtype), deviation));
      KernelRun run = square_sums(dtype, deviation);
      const auto expected = run.run_reference().result(0);
      expect_near(run.run(all_kernels(), "cpu.square_sums").result(0), expected, 1e-12);
      EXPECT_EQ(run.result(0)[3], 0);
      EXPECT_EQ(run.result(0)[5], 0);
    }
  }
}

TEST(SquareSums, NoticesOneBadElementAnywhere) {
  for (double bad : {HUGE_VAL, -HUGE_VAL, std::nan("")}) {
    for (size_t at : {size_t{0}, size_t{16384}, size_t{20002}}) {
      std::vector<double> gradient(20003, 1.0);
      gradient[at] = bad;
      KernelRun run(Op::SquareSums, {{"slots", "0,1,0"}, {"num_slots", 2}});
      run.in(DType::F32, {8}, {0, 0, 0, 0, 0, 1, 1, 0}).in({0}, {});
      for (int piece = 0; piece < 2; ++piece) run.in(DType::F32, {20003}, gradient);
      run.in(DType::F32, {2}, {1, 1}).out({3});
      EXPECT_EQ(run.run(all_kernels(), "cpu.square_sums").result(0)[2], 2) << bad << " at " << at;
    }
  }
}

TEST(SquareSums, HasTheSameBitsForAnyThreadCount) {
  KernelRun run = square_sums(DType::F32, 1);
  const auto one = run.run(all_kernels(), "cpu.square_sums", 1).result_bytes(0);
  for (int threads : {2, 4})
    EXPECT_EQ(run.run(all_kernels(), "cpu.square_sums", threads).result_bytes(0), one);
}

TEST(SquareSums, RefusesSlotsThatDoNotFitThePieces) {
  for (const char* slots : {"0", "0,1,1", "0,2", "0,-1", "0;1"}) {
    KernelRun run(Op::SquareSums, {{"slots", slots}, {"num_slots", 2}});
    run.in(DType::F32, {8}, std::vector<double>(8, 1.0)).in({1}, {0});
    run.in(DType::F32, {1}, {1}).in(DType::F32, {1}, {1}).out({4});
    EXPECT_THROW(run.run(all_kernels(), "cpu.square_sums"), BugError) << slots;
  }
}

TEST(GlobalNorm, MatchesTheReference) {
  for (const auto& sums : std::vector<std::vector<double>>{
           {1, 2, 3, 0, 9}, {1, 2, 3, 1, 9}, {1, HUGE_VAL, 3, 0, 9}, {1, std::nan(""), 3, 0, 9}}) {
    KernelRun run(Op::GlobalNorm, {{"num_slots", 3}});
    run.in({5}, sums).out({2});
    const auto expected = run.run_reference().result_bytes(0);
    EXPECT_EQ(run.run(all_kernels(), "cpu.global_norm").result_bytes(0), expected);
  }
}

TEST(OptimizerChunks, CoverEveryTensorOnce) {
  OptimizerChunks chunks;
  for (int64_t n : kSizes) chunks.add_tensor(n);
  std::vector<int64_t> covered(kSizes.size());
  for (int64_t i = 0; i < chunks.size(); ++i) {
    const auto [tensor, begin, elems] = chunks[i];
    EXPECT_EQ(begin, covered[tensor]);
    EXPECT_GT(elems, 0);
    covered[tensor] += elems;
  }
  EXPECT_EQ(covered, kSizes);
}

}  // namespace
}  // namespace tandem::cpu
