#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tandem/base/split_float.h"
#include "tandem/kernels/cpu/optimizer/optimizer_chunks.h"
#include "tandem/kernels/cpu/optimizer/optimizer_setting_test.h"
#include "tandem/kernels/cpu/pointwise/pointwise_test.h"
#include "tandem/kernels/cpu/ref/ref_kernel_run_test.h"

namespace tandem::cpu {
namespace {

// Sizes around a vector and around a chunk.
const std::vector<int64_t> kSizes = {1, 15, 16, 1000, kOptimizerChunk, kOptimizerChunk + 5};

constexpr double kNorm = 2.5;  // clipped

KernelRun update(const OptimizerSetting& setting, bool finite = true, bool keep = false) {
  std::string decay;
  for (size_t i = 0; i < kSizes.size(); ++i) decay += i == 0 ? "1" : i % 2 == 0 ? ",1" : ",0";
  Attrs attrs{{"masters", setting.masters ? 1 : 0}, {"decay", decay}, {"keep", keep ? 1 : 0}};
  if (setting.reads_sums()) attrs.set("slots", slots_text(kSizes.size()));
  KernelRun run(setting.op, std::move(attrs));
  const std::vector<double> hyper = hyper_values(setting.op);
  run.in(DType::F32, {static_cast<int64_t>(hyper.size())}, hyper);
  run.in({2}, {kNorm, finite ? 1.0 : 0.0});
  if (setting.reads_sums()) run.in({2 * static_cast<int64_t>(kSizes.size())}, sums_values(kSizes.size()));
  uint64_t seed = 1;
  for (int64_t n : kSizes) {
    run.random_in(setting.weight, {n}, seed).random_in(setting.gradient, {n}, seed + 1);
    if (setting.num_states() > 0) run.random_in(DType::F32, {n}, seed + 2, 0.1);
    for (size_t i = 1; i < setting.num_states(); ++i)
      run.in(DType::F32, {n}, std::vector<double>(static_cast<size_t>(n), 0.25));
    if (setting.halves()) run.random_in(DType::I16, {n}, seed, 4000);
    if (setting.masters && !setting.halves()) run.random_in(DType::F32, {n}, seed);
    seed += 4;
  }
  for (size_t i = 0; i < setting.group_size() * kSizes.size(); ++i) run.in_place_out();
  return run;
}

// The numbers whose halves are outputs `high` and `low`.
std::vector<double> joined(const KernelRun& run, int high, int low) {
  std::vector<float> floats(run.result_bytes(high).size() / 2);
  join_floats(run.result_bytes(high), run.result_bytes(low), std::as_writable_bytes(std::span(floats)));
  return {floats.begin(), floats.end()};
}

TEST(OptimizerKernels, MatchTheReferenceForEveryStorageType) {
  for (const OptimizerSetting& setting : optimizer_settings()) {
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
  for (const OptimizerSetting& setting : optimizer_settings()) {
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

// One element, spelled out as the optimizer's header says it, where g is unscaled and clipped.
float updated_weight(const OptimizerStep<AdamW>& step, bool decayed, float w, float g, float* states) {
  float &m = states[0], &v = states[1];
  m = step.own.beta1 * m + step.own.rest1 * g;
  v = step.own.beta2 * v + step.own.rest2 * (g * g);
  return w * (decayed ? step.keep : 1) -
         (step.own.rate * m) / (std::sqrt(v) * step.own.root_scale + step.own.eps);
}
float updated_weight(const OptimizerStep<Sgd>& step, bool decayed, float w, float g, float* states) {
  states[0] = step.own.momentum * states[0] + ((decayed ? step.decay : 0) * w + g);
  return w - step.lr * states[0];
}
float updated_weight(const OptimizerStep<Lion>& step, bool decayed, float w, float g, float* states) {
  const float c = step.own.beta1 * states[0] + step.own.rest1 * g;
  states[0] = step.own.beta2 * states[0] + step.own.rest2 * g;
  return w * (decayed ? step.keep : 1) - (c > 0 ? step.lr : c < 0 ? -step.lr : 0);
}

float updated_weight(const OptimizerStep<Muon>& step, bool decayed, float w, float o, float*) {
  return w * (decayed ? step.keep : 1) - step.lr * o;
}

float updated_weight(const OptimizerStep<Lamb>& step, bool decayed, float w, float g, float* states) {
  float &m = states[0], &v = states[1];
  m = step.own.beta1 * m + step.own.rest1 * g;
  v = step.own.beta2 * v + step.own.rest2 * (g * g);
  const float root = std::sqrt(v) * step.own.root_scale + step.own.eps;
  const float direction = (step.own.mean_scale * m) / root + (decayed ? step.decay : 0) * w;
  return w - (step.lr * step.own.trust) * direction;
}
float updated_weight(const OptimizerStep<Lars>& step, bool decayed, float w, float g, float* states) {
  states[0] = step.own.momentum * states[0] + step.own.trust * ((decayed ? step.decay : 0) * w + g);
  return w - step.lr * states[0];
}

float updated_weight(const OptimizerStep<Adafactor>& step, bool decayed, float w, float u, float*) {
  return w * (decayed ? step.keep : 1) - step.own.trust * u;
}

float updated_weight(const OptimizerStep<ScheduleFree>& step, bool decayed, float x, float g, float* states) {
  float &lead = states[0], &v = states[1];
  v = step.own.beta2 * v + step.own.rest2 * (g * g);
  const float shown = x + step.own.share * lead;
  const float direction =
      g / (std::sqrt(v) * step.own.root_scale + step.own.eps) + (decayed ? step.decay : 0) * shown;
  const float moved = lead - step.lr * direction;
  lead = step.own.rest * moved;
  return x + step.own.average * moved;
}

// The weight that is stored beside a master: that, or what passes read.
template <typename Rule>
float stored_weight(const OptimizerStep<Rule>&, float trained, const float*) {
  return trained;
}
float stored_weight(const OptimizerStep<ScheduleFree>& step, float x, const float* states) {
  return x + step.own.share * states[0];
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

// One parameter's tensors: w, g, states..., [master].
std::vector<HostTensor> spread_parameter(const OptimizerSetting& setting, int64_t elems) {
  std::vector<HostTensor> tensors = {spread_tensor(setting.weight, elems, 1),
                                     spread_tensor(setting.gradient, elems, 2)};
  if (setting.num_states() > 0) tensors.push_back(spread_tensor(DType::F32, elems, 3));
  for (size_t s = 1; s < setting.num_states(); ++s) {
    tensors.push_back(spread_tensor(DType::F32, elems, 3 + s));
    for (int64_t i = 0; i < elems; ++i) ref::set(tensors.back().arg(), i, std::abs(tensors.back().at(i)));
  }
  if (setting.halves()) {
    tensors.push_back(random_tensor(DType::I16, {elems}, 5, 4000));
  } else if (setting.masters) {
    tensors.push_back(spread_tensor(DType::F32, elems, 5));
  }
  return tensors;
}

template <typename Rule>
std::vector<HostTensor> spelled_out(const OptimizerSetting& setting, const OptimizerStep<Rule>& step,
                                    bool decayed, std::vector<HostTensor> tensors) {
  const TensorArg w = tensors[0].arg(), g = tensors[1].arg();
  const TensorArg master = tensors.back().arg(), weight = setting.masters ? master : w;
  for (int64_t i = 0; i < w.elems(); ++i) {
    std::vector<float> states;
    for (size_t s = 0; s < setting.num_states(); ++s) states.push_back(tensors[2 + s].arg().as<float>()[i]);
    const float old = setting.halves() ? join_float({w.as<BFloat16>()[i].bits, master.as<int16_t>()[i]})
                                       : static_cast<float>(ref::get(weight, i));
    const float scaled = static_cast<float>(ref::get(g, i)) * op_grad_factor(step);
    const float grad = std::clamp(scaled, -op_largest(step), op_largest(step));
    const float updated = updated_weight(step, decayed, old, grad, states.data());
    for (size_t s = 0; s < setting.num_states(); ++s) tensors[2 + s].arg().as<float>()[i] = states[s];
    if (setting.halves()) {
      const SplitFloat halves = split_float(updated);
      w.as<BFloat16>()[i].bits = halves.high;
      master.as<int16_t>()[i] = halves.low;
    } else {
      ref::set(weight, i, static_cast<double>(updated));
      const float stored = stored_weight(step, updated, states.data());
      if (setting.averages() && setting.weight == DType::BF16) {
        w.as<BFloat16>()[i].bits = split_float(stored).high;
      } else {
        ref::set(w, i, static_cast<double>(stored));
      }
    }
    ref::set(g, i, 0);
  }
  return tensors;
}

template <typename Rule>
void expect_spelled_out(const OptimizerSetting& setting) {
  static const KernelRegistry registry = all_kernels();
  const std::vector<double> values = hyper_values(setting.op);
  HostTensor hyper(DType::F32, {static_cast<int64_t>(values.size())}), norm(DType::F64, {2});
  for (size_t i = 0; i < values.size(); ++i) ref::set(hyper.arg(), static_cast<int64_t>(i), values[i]);
  ref::set(norm.arg(), 0, kNorm);
  ref::set(norm.arg(), 1, 1);
  const std::vector<double> measured = sums_values(1);
  HostTensor sums(DType::F64, {2});
  for (int64_t i = 0; i < 2; ++i) ref::set(sums.arg(), i, measured[static_cast<size_t>(i)]);
  const auto plain = optimizer_step<Rule>(hyper.arg().as<float>(), norm.arg().as<double>());
  for (const bool decayed : {false, true}) {
    const auto step = with_trust(plain, sums.arg().as<double>(), 0, decayed);
    const std::vector<HostTensor> tensors = spread_parameter(setting, 10007);
    Call call{setting.op, {hyper, norm}, {}, {}, {{"masters", int64_t{setting.masters}}}};
    call.attrs.set("decay", std::string(decayed ? "1" : "0"));
    if (setting.reads_sums()) call.in.push_back(sums);
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

TEST(OptimizerKernels, HaveTheBitsThatAreSpelledOutOnEveryTarget) {
  for (const OptimizerSetting& setting : optimizer_settings()) {
#define TANDEM_EXPECT(type, name) \
  if (setting.op == Op::type) expect_spelled_out<type>(setting);
    TANDEM_OPTIMIZERS(TANDEM_EXPECT)
#undef TANDEM_EXPECT
  }
}

TEST(OptimizerStep, HasTheBiasCorrectionsOfItsCount) {
  const double norm[2] = {1, 1};
  for (const double count : {1, 2, 3, 10, 1000, 12345, 1 << 24}) {
    const float hyper[] = {0.01f, 0.1f, static_cast<float>(count), 0.5f, 2, 0, 0, 0.9f, 0.95f, 1e-8f};
    const OptimizerStep<AdamW> step = optimizer_step<AdamW>(hyper, norm);
    const double beta1 = hyper[kHyperOwn], beta2 = hyper[kHyperOwn + 1];
    EXPECT_FLOAT_EQ(step.own.rate, static_cast<float>(hyper[kHyperLr] / (1 - std::pow(beta1, count))));
    EXPECT_FLOAT_EQ(step.own.root_scale, static_cast<float>(1 / std::sqrt(1 - std::pow(beta2, count))));
    EXPECT_EQ(step.grad_factor, 0.5f);  // the norm is below the clip
  }
}

TEST(OptimizerKernels, ZeroTheGradients) {
  for (const OptimizerSetting& setting : optimizer_settings()) {
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
  for (const OptimizerSetting& setting : optimizer_settings()) {
    KernelRun expected = update(setting, false), actual = expected;
    expected.run_reference();
    actual.run(all_kernels(), setting.kernel());
    for (int i = 0; i < expected.num_results(); ++i) {
      EXPECT_EQ(actual.result_bytes(i), expected.result_bytes(i)) << setting.name();
    }
  }
}

TEST(OptimizerKernels, HaveTheSameBitsForAnyThreadCount) {
  for (const OptimizerSetting& setting : optimizer_settings()) {
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
  const OptimizerSetting setting{Op::AdamW, DType::F16, DType::F32, true};
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
  HostTensor hyper(DType::F32, {num_hyper_slots(OptimizerKind::AdamW)}), norm(DType::F64, {2});
  ref::set(hyper.arg(), kHyperOwn + 2, 1);  // eps; no rate, no decay
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
  run.in(DType::F32, {5}, {0, 0, 1, 0.25, 0}).in({3}, {7, 8, 9});
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
      run.in(DType::F32, {5}, {0, 0, 1, 1, 0}).in({0}, {});
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
