// What makes a step smaller or faster on one rank does so on many, by the reference kernels: gradients that
// are overwritten, gradients in 16 bits, products in 8 bits.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tandem/compile/passes/fp8.h"
#include "tandem/kernels/cpu/register.h"
#include "tandem/runtime/rank_sessions_test.h"

namespace tandem {
namespace {

constexpr Strategy kSharded[] = {Strategy::Zero1, Strategy::Zero2, Strategy::Fsdp};

using Adjust = std::function<void(CompileOptions&)>;

RankedRun train(const MeshShape& shape, Strategy strategy, const Adjust& adjust) {
  return train_ranks(shape, strategy, cpu::reference_kernels(), adjust);
}

Adjust with(Precision precision, const Adjust& more = {}) {
  return [=](CompileOptions& options) {
    options.precision = precision_policy(precision);
    if (more) more(options);
  };
}

// The tensors that differ, by name.
std::string differing(const Weights& a, const Weights& b) {
  std::string names;
  for (const auto& [name, values] : a) {
    if (!b.contains(name) || b.at(name) != values) names += name + " ";
  }
  return a.size() == b.size() ? names : names + "and in number";
}

void expect_near(const Weights& a, const Weights& b, float tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, values] : a) {
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(values[i], b.at(name)[i], tolerance) << name << " " << i;
  }
}

int64_t arena(const RankedRun& run, Arena which) { return run.steps[0].sizes[static_cast<size_t>(which)]; }

int64_t count(const Executable& executable, Op op) {
  return std::ranges::count_if(executable.commands, [&](const Command& command) { return command.op == op; });
}

TEST(OverwrittenGradients, GiveTheSameBitsOnEveryMesh) {
  struct Case {
    MeshShape shape;
    Strategy strategy;
    int64_t micro_batches;
    bool offload;
  };
  for (const auto& [shape, strategy, micro_batches, offload] :
       {Case{{.data = 2}, Strategy::Ddp, 1, false}, Case{{.data = 2}, Strategy::Fsdp, 2, false},
        Case{{.data = 3}, Strategy::Zero2, 1, true}, Case{{.tensor = 2}, Strategy::Single, 1, false},
        Case{{.data = 2, .pipeline = 2}, Strategy::Zero1, 2, false},
        Case{{.pipeline = 2}, Strategy::Single, 1, false}, Case{{}, Strategy::Single, 1, true}}) {
    const auto adjust = [&](bool overwrite) {
      return with(Precision::Bf16, [=, micro_batches = micro_batches, offload = offload](CompileOptions& o) {
        o.parallel.micro_batches = micro_batches;
        o.parallel.offload_optimizer = offload;
        o.overwrite_gradients = overwrite;
      });
    };
    const RankedRun added = train(shape, strategy, adjust(false));
    const RankedRun written = train(shape, strategy, adjust(true));
    SCOPED_TRACE(fmt::format("{} ranks, strategy {}, {} passes", shape.world(), static_cast<int>(strategy),
                             micro_batches));
    EXPECT_EQ(differing(added.weights, written.weights), "");
    EXPECT_EQ(count(written.steps[0].pass, Op::Zeros), 0);
    if (shape.data > 1) {
      EXPECT_GT(count(added.steps[0].pass, Op::Zeros), 0);
    } else {
      EXPECT_LT(arena(written, Arena::Gradients), arena(added, Arena::Gradients) / 10);
    }
  }
}

Adjust narrow_gradients(int64_t micro_batches, bool offload = false) {
  return with(Precision::Bf16, [=](CompileOptions& options) {
    options.parallel.micro_batches = micro_batches;
    options.parallel.offload_optimizer = offload;
    options.overwrite_gradients = true;
    options.precision.block_gradients = DType::BF16;
  });
}

TEST(GradientsIn16Bits, GiveTheSameBitsForEveryShardingAndNearlyThoseOfFp32) {
  for (const int64_t micro_batches : {1, 2}) {
    const RankedRun ddp = train({.data = 2}, Strategy::Ddp, narrow_gradients(micro_batches));
    for (Strategy strategy : kSharded)
      EXPECT_EQ(differing(ddp.weights, train({.data = 2}, strategy, narrow_gradients(micro_batches)).weights),
                "");
    EXPECT_EQ(differing(ddp.weights,
                        train({.data = 2}, Strategy::Zero2, narrow_gradients(micro_batches, true)).weights),
              "");
    const RankedRun wide =
        train({.data = 2}, Strategy::Ddp, with(Precision::Bf16, [&](CompileOptions& options) {
                options.parallel.micro_batches = micro_batches;
                options.overwrite_gradients = true;
              }));
    EXPECT_NE(ddp.weights, wide.weights);
    expect_near(ddp.weights, wide.weights, 3e-2f);  // AdamW makes whole steps of small gradients
    EXPECT_LT(arena(ddp, Arena::Communication), arena(wide, Arena::Communication));
  }
}

TEST(GradientsIn16Bits, SuitTheOtherAxes) {
  const RankedRun one = train({}, Strategy::Single, narrow_gradients(1));
  EXPECT_EQ(differing(one.weights, train({}, Strategy::Single, narrow_gradients(1, true)).weights), "");
  EXPECT_EQ(differing(one.weights, train({.pipeline = 2}, Strategy::Single, narrow_gradients(1)).weights),
            "");
  expect_near(one.weights, train({.tensor = 2}, Strategy::Single, narrow_gradients(1)).weights, 3e-2f);
}

Adjust fp8(int64_t micro_batches = 1, const Adjust& more = {}) {
  return with(Precision::Fp8, [=](CompileOptions& options) {
    options.parallel.micro_batches = micro_batches;
    if (more) more(options);
  });
}

TEST(Fp8Ranks, EveryShardingGivesTheSameBitsAndRanges) {
  for (const int ranks : {2, 4}) {
    for (const int64_t micro_batches : {1, 2}) {
      const MeshShape shape{.data = ranks};
      const RankedRun ddp = train(shape, Strategy::Ddp, fp8(micro_batches));
      ASSERT_TRUE(ddp.weights.contains(std::string(kFp8Activations)));
      for (float range : ddp.weights.at(std::string(kFp8Gradients))) EXPECT_GT(range, 0);
      for (Strategy strategy : kSharded)
        EXPECT_EQ(differing(ddp.weights, train(shape, strategy, fp8(micro_batches)).weights), "")
            << ranks << " ranks, strategy " << static_cast<int>(strategy);
    }
  }
}

TEST(Fp8Ranks, FullRecomputationOffloadAndNarrowGradientsSuitThem) {
  const MeshShape shape{.data = 2};
  const RankedRun ddp = train(shape, Strategy::Ddp, fp8());
  for (Strategy strategy : {Strategy::Ddp, Strategy::Fsdp}) {
    const RankedRun other = train(shape, strategy, fp8(1, [](CompileOptions& options) {
                                    options.recompute = {RecomputeKind::Full, 0};
                                    options.parallel.offload_optimizer = true;
                                  }));
    EXPECT_EQ(differing(ddp.weights, other.weights), "");
  }
  const Adjust narrow = [](CompileOptions& options) {
    options.overwrite_gradients = true;
    options.precision.block_gradients = DType::BF16;
  };
  EXPECT_EQ(differing(train(shape, Strategy::Ddp, fp8(2, narrow)).weights,
                      train(shape, Strategy::Fsdp, fp8(2, narrow)).weights),
            "");
}

TEST(Fp8Ranks, GatherTheBlocksMatricesInEightBits) {
  const auto gathered = [](const RankedRun& run) {
    int64_t bytes = 0;
    for (const Command& command : run.steps[0].pass.commands) {
      if (command.op == Op::AllGather && command.block == 1) bytes += command.sent_bytes;
    }
    return bytes;
  };
  const RankedRun narrow = train({.data = 2}, Strategy::Fsdp, fp8());
  const RankedRun wide = train({.data = 2}, Strategy::Fsdp, with(Precision::Bf16));
  // 3072 weights in matrices and 192 beside them, forward and backward.
  EXPECT_NEAR(static_cast<double>(gathered(narrow)) / static_cast<double>(gathered(wide)), 0.5, 0.05);
}

TEST(Fp8Ranks, StayCloseToOneRankOnEveryAxis) {
  const Weights one = train({}, Strategy::Single, fp8(2)).weights;
  EXPECT_EQ(differing(one, train({.pipeline = 2}, Strategy::Single, fp8(2)).weights), "");
  // What recomputation quantizes again belongs to a micro-batch before the last whose forward has run.
  const Adjust again = [](CompileOptions& options) { options.recompute = {RecomputeKind::Full, 0}; };
  EXPECT_EQ(differing(one, train({.pipeline = 2}, Strategy::Single, fp8(2, again)).weights), "");
  const Weights data = train({.data = 2}, Strategy::Ddp, fp8()).weights;
  const Weights mixed = train({.data = 2, .pipeline = 2}, Strategy::Fsdp, fp8()).weights;
  expect_near(data, mixed, 2e-2f);
}

// Wide enough that what a rank of two has of each matrix still has multiples of 16.
RankedRun train_wide(const MeshShape& shape, Strategy strategy, const Adjust& adjust) {
  ModelConfig model = tiny_gpt2(2);
  model.width = 64;
  model.heads = 4;
  return train_ranks(shape, strategy, cpu::reference_kernels(), adjust, build_model(model, 2));
}

// |a - b| / |a|, of all values of a tensor.
double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(a[i] - b.at(i), 2);
    size += std::pow(a[i], 2);
  }
  return std::sqrt(difference / size);
}

// A rank's part of a matrix is a tensor of its own, with a scale of its own; what was seen of activations and
// gradients is that of all ranks.
TEST(Fp8Ranks, ShareATensorAxis) {
  const RankedRun one = train_wide({}, Strategy::Single, fp8());
  const RankedRun two = train_wide({.tensor = 2}, Strategy::Single, fp8());
  for (const CompiledStep& step : two.steps) {
    EXPECT_EQ(count(step.pass, Op::Fp8Matmul), count(one.steps[0].pass, Op::Fp8Matmul));
    EXPECT_EQ(count(step.pass, Op::Fp8MatmulAcc), count(one.steps[0].pass, Op::Fp8MatmulAcc));
  }
  ASSERT_EQ(one.weights.size(), two.weights.size());
  for (const auto& [name, values] : one.weights)
    EXPECT_LT(relative_difference(values, two.weights.at(name)), 0.01) << name;
  const RankedRun wide = train_wide({.tensor = 2}, Strategy::Single, with(Precision::Bf16));
  const std::string moment = "moment1:blocks.0.up.weight";  // where products in 16 bits end up elsewhere
  EXPECT_GT(relative_difference(one.weights.at(moment), wide.weights.at(moment)), 0.05);

  const MeshShape mesh{.data = 2, .tensor = 2};
  const RankedRun ddp = train_wide(mesh, Strategy::Ddp, fp8());
  for (Strategy strategy : kSharded)
    EXPECT_EQ(differing(ddp.weights, train_wide(mesh, strategy, fp8()).weights), "");
}

}  // namespace
}  // namespace tandem
