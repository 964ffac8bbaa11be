// Separate documents (compile/passes/documents.h) on the fast kernels: a sequence of several gives what each
// gives alone; and the same bits on every strategy, in a pipeline and with every recomputation. The tensor
// axis is in tensor_axis_numeric_test.cpp.
#include <gtest/gtest.h>

#include <cmath>

#include "tandem/kernels/cpu/register.h"
#include "tandem/models/family_models_test.h"
#include "tandem/runtime/rank_sessions_test.h"

namespace tandem {
namespace {

std::vector<FamilyModel> models() {
  std::vector<FamilyModel> models = family_models();
  FamilyModel gpt2{"gpt2", tiny_gpt2(2)};
  gpt2.model.context = 12;
  models.push_back(gpt2);
  return models;
}

struct Row {
  std::vector<int32_t> tokens, segments, positions;
};

// Documents of these lengths, one behind the other, from `first` on.
Row packed(std::span<const int32_t> text, std::span<const size_t> lengths) {
  Row row;
  int32_t segment = 0;
  size_t at = 0;
  for (const size_t length : lengths) {
    for (size_t i = 0; i < length; ++i) {
      row.tokens.push_back(text[at++]);
      row.segments.push_back(segment);
      row.positions.push_back(static_cast<int32_t>(i));
    }
    ++segment;
  }
  return row;
}

class Documents : public testing::TestWithParam<FamilyModel> {
 protected:
  static constexpr size_t kContext = 12;
  static constexpr size_t kLengths[] = {5, 4, 3};

  std::vector<float> logits(Row row, bool separate) {
    const size_t used = row.tokens.size();
    row.tokens.resize(kContext);
    row.segments.resize(kContext, row.segments.back());
    row.positions.resize(kContext);
    CompileOptions options;
    options.separate_documents = separate;
    options.choose = choose_from(registry_, 1);
    Session session(compile_forward(build_model(GetParam().model, 1), options, ForwardOutput::Logits),
                    registry_, pool_);
    session.initialize(5);
    const Executable& eval = session.step().eval;
    session.write(eval, "tokens", std::as_bytes(std::span(row.tokens)));
    if (separate) {
      session.write(eval, "segments", std::as_bytes(std::span(row.segments)));
      // Nobody reads them where no layer knows positions.
      for (const Binding& input : eval.inputs) {
        if (input.name == "positions")
          session.write(eval, "positions", std::as_bytes(std::span(row.positions)));
      }
    }
    session.run_eval();
    const auto* values = reinterpret_cast<const float*>(session.read(eval, "logits").data());
    return {values, values + used * static_cast<size_t>(GetParam().model.vocab)};
  }

  static Weights train(const MeshShape& shape, Strategy strategy, int64_t micro_batches = 1,
                       Precision precision = Precision::Fp32, Recompute recompute = {},
                       bool separate = true) {
    return train_ranks(
               shape, strategy, cpu::all_kernels(),
               [&](CompileOptions& options) {
                 options.separate_documents = separate;
                 options.precision = precision_policy(precision);
                 options.recompute = recompute;
                 options.parallel.micro_batches = micro_batches;
                 options.fuse.bias_sums = false;
               },
               build_model(GetParam().model, 2))
        .weights;
  }

  const KernelRegistry registry_ = cpu::all_kernels();
  ThreadPool pool_{1};
};

TEST_P(Documents, OfOneSequenceGiveWhatEachGivesAlone) {
  std::vector<int32_t> text(kContext);
  for (size_t i = 0; i < kContext; ++i) text[i] = static_cast<int32_t>((i * 11 + 3) % 32);
  const std::vector<float> together = logits(packed(text, kLengths), true);
  const std::vector<float> joined = logits(packed(text, kLengths), false);
  const auto vocab = static_cast<size_t>(GetParam().model.vocab);
  size_t first = 0;
  double difference = 0;
  for (const size_t length : kLengths) {
    const size_t only[] = {length};
    const std::vector<float> alone = logits(packed(std::span(text).subspan(first), only), false);
    for (size_t i = 0; i < length * vocab; ++i) {
      const float found = together[first * vocab + i];
      ASSERT_NEAR(found, alone[i], 1e-6 + 1e-6 * std::abs(alone[i])) << "document from " << first;
      difference = std::max(difference, std::abs(static_cast<double>(found) - joined[first * vocab + i]));
    }
    first += length;
  }
  EXPECT_GT(difference, 1e-4) << "joined documents see each other";
}

TEST_P(Documents, HaveTheSameBitsWithAnyRecomputation) {
  const MeshShape one{};
  for (const Precision precision : {Precision::Fp32, Precision::Bf16, Precision::Fp16}) {
    const Weights kept = train(one, Strategy::Single, 1, precision);
    for (const RecomputeKind kind : {RecomputeKind::Selective, RecomputeKind::Every, RecomputeKind::Full})
      EXPECT_TRUE(train(one, Strategy::Single, 1, precision, {kind, 2}) == kept) << static_cast<int>(kind);
  }
}

TEST_P(Documents, HaveTheSameBitsOnEveryShardingAndInAPipeline) {
  const MeshShape one{}, two{.data = 2};
  for (const Precision precision : {Precision::Fp32, Precision::Bf16}) {
    const Weights ddp = train(two, Strategy::Ddp, 1, precision);
    for (const Strategy strategy : {Strategy::Zero1, Strategy::Zero2, Strategy::Fsdp})
      EXPECT_TRUE(train(two, strategy, 1, precision) == ddp);
  }
  const Weights separate = train(one, Strategy::Single, 2);
  EXPECT_TRUE(train({.pipeline = 2}, Strategy::Single, 2) == separate);
  EXPECT_FALSE(train(one, Strategy::Single, 2, Precision::Fp32, {}, /*separate=*/false) == separate);
}

INSTANTIATE_TEST_SUITE_P(EveryModel, Documents, testing::ValuesIn(models()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tandem
