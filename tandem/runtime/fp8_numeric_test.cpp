// Small models trained with 8-bit products, by the reference kernels: the losses of 16-bit ones, nearly, and
// the same bits however the step is compiled.
#include <gtest/gtest.h>

#include <cstring>

#include "tandem/compile/passes/fp8.h"
#include "tandem/config/values.h"
#include "tandem/kernels/cpu/register.h"
#include "tandem/models/model.h"
#include "tandem/runtime/train_step_test.h"

namespace tandem {
namespace {

constexpr int64_t kBatch = 2, kContext = 16, kVocab = 48;

ModelConfig model(Family family) {
  ModelConfig config;
  config.family = family;
  config.layers = 2;
  config.width = 32;
  config.heads = 2;
  config.kv_heads = 2;
  config.ffn = 64;
  config.context = kContext;
  config.vocab = kVocab;
  return config;
}

struct Result {
  std::vector<double> losses;
  std::vector<float> ranges;  // what was seen of the gradients
};

Result train(Family family, const PrecisionPolicy& precision, Recompute recompute = {}, int steps = 12) {
  const KernelRegistry registry = cpu::all_kernels();
  ThreadPool pool(1);
  CompileOptions options;
  options.precision = precision;
  options.recompute = recompute;
  options.choose = choose_from(registry, 1);
  Session session(compile_step(build_model(model(family), kBatch), options), registry, pool);
  session.initialize(3);
  Result result;
  for (int i = 1; i <= steps; ++i) {
    std::vector<int32_t> tokens(kBatch * kContext), targets(kBatch * kContext);
    for (size_t t = 0; t < tokens.size(); ++t) {
      tokens[t] = static_cast<int32_t>((t * 5 + t / 7) % kVocab);
      targets[t] = static_cast<int32_t>(((t + 1) * 5 + (t + 1) / 7) % kVocab);
    }
    const TrainStep how{.lr = 3e-3f, .beta2 = 0.99f, .decay = 0, .clip = 0};
    result.losses.push_back(train_step(session, i, tokens, targets, how).loss);
  }
  if (const Persistent* ranges = session.step().find(kFp8Gradients)) {
    const auto bytes = session.buffer(*ranges);
    result.ranges.resize(bytes.size() / sizeof(float));
    std::memcpy(result.ranges.data(), bytes.data(), bytes.size());
  }
  return result;
}

const PrecisionPolicy kFp8 = precision_policy(Precision::Fp8);

class Fp8Training : public testing::TestWithParam<Family> {};

TEST_P(Fp8Training, FollowsSixteenBits) {
  const Result narrow = train(GetParam(), kFp8), wide = train(GetParam(), precision_policy(Precision::Bf16));
  EXPECT_LT(wide.losses.back(), 0.8 * wide.losses.front()) << "the model learns nothing: no test";
  for (size_t i = 0; i < wide.losses.size(); ++i)
    EXPECT_NEAR(narrow.losses[i], wide.losses[i], 0.02 * wide.losses[i]) << "step " << i;
  EXPECT_NE(narrow.losses, wide.losses) << "nothing was quantized";
  ASSERT_EQ(narrow.ranges.size(), 8u);  // four matrices a block
  for (float range : narrow.ranges) EXPECT_GT(range, 0);
}

TEST_P(Fp8Training, TheSameBitsWithRecomputation) {
  const Result plain = train(GetParam(), kFp8, {}, 4);
  for (const Recompute& choice : {Recompute{RecomputeKind::Full, 0}, Recompute{RecomputeKind::Selective, 0},
                                  Recompute{RecomputeKind::Every, 2}}) {
    const Result again = train(GetParam(), kFp8, choice, 4);
    EXPECT_EQ(again.losses, plain.losses);
    EXPECT_EQ(again.ranges, plain.ranges);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Fp8Training, testing::Values(Family::Gpt2, Family::Llama),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace tandem
