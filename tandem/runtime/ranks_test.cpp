// Several ranks as threads of one process: sessions that talk.
#include <gtest/gtest.h>
#include <algorithm>
#include <cstring>
#include <functional>
#include <thread>

#include "tandem/base/split_float.h"
#include "tandem/comm/connect.h"
#include "tandem/kernels/cpu/register.h"
#include "tandem/models/tiny_gpt2_test.h"
#include "tandem/runtime/session.h"

namespace tandem {
namespace {

void write_input(Session& session, const Executable& executable, const Binding& input, int data) {
  std::vector<int32_t> ids(static_cast<size_t>(input.slice.type.shape.elems()));
  for (size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<int32_t>((i * 7 + 5 * static_cast<size_t>(data)) % 32);
  session.write(executable, input.name, std::as_bytes(std::span(ids)));
}

// The logical parameters after two steps, put together from what each rank owns.
using Weights = std::map<std::string, std::vector<float>>;

// Of a buffer in fp32, or of masters whose other halves are the weights.
std::vector<float> floats_of(const Session& session, const Persistent& item) {
  std::vector<float> values(static_cast<size_t>(item.slice.type.shape.elems()));
  const std::span<std::byte> dst = std::as_writable_bytes(std::span(values));
  if (item.slice.type.dtype == DType::I16) {
    join_floats(session.buffer(*item.weights), session.buffer(item), dst);
  } else {
    std::ranges::copy(session.buffer(item), dst.begin());
  }
  return values;
}

void collect(const Session& session, Weights& weights) {
  for (const Persistent& item : session.step().persistents) {
    if (is_half(item.slice.type.dtype) || item.slice.arena == Arena::Gradients) continue;
    const std::vector<float> values = floats_of(session, item);
    for (const Piece& piece : item.pieces) {
      if (!piece.owned) continue;
      std::vector<float>& whole = weights[piece.tensor];
      whole.resize(static_cast<size_t>(piece.shape.elems()), -1.0f);
      const int64_t cols = piece.shape.elems() / piece.shape[0];
      int64_t at = piece.offset;
      for (int64_t row = piece.box.row_begin; row < piece.box.row_end; ++row) {
        for (int64_t col = piece.box.col_begin; col < piece.box.col_end; ++col)
          whole[static_cast<size_t>(row * cols + col)] = values[static_cast<size_t>(at++)];
      }
    }
  }
}

Weights train(const MeshShape& shape, Strategy strategy, Precision precision,
              const std::function<void(ParallelOptions&)>& adjust = {}, bool outputs_again = false) {
  std::vector<Communicators> comms = connect_threads(shape, {});
  const KernelRegistry registry = cpu::all_kernels();
  std::vector<std::unique_ptr<ThreadPool>> pools;
  for (int rank = 0; rank < shape.world(); ++rank) pools.push_back(std::make_unique<ThreadPool>(1));
  std::vector<std::unique_ptr<Session>> sessions(static_cast<size_t>(shape.world()));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < shape.world(); ++rank) {
      threads.emplace_back([&, rank] {
        CompileOptions options;
        options.parallel.at = MeshPosition::of(shape, rank);
        options.parallel.strategy = strategy;
        if (adjust) adjust(options.parallel);
        options.precision = precision_policy(precision);
        options.fuse.bias_sums = true;
        options.fuse.attention_sums = [](const TensorType&, const Attrs&) { return true; };
        options.fuse.outputs_again = outputs_again;
        if (outputs_again) options.recompute = {RecomputeKind::Selective, 0};
        options.choose = choose_from(registry, 1);
        auto& session = sessions[static_cast<size_t>(rank)];
        session = std::make_unique<Session>(compile_step(build_model(tiny_gpt2(2), 2), options), registry,
                                            *pools[static_cast<size_t>(rank)],
                                            shape.world() > 1 ? &comms[static_cast<size_t>(rank)] : nullptr);
        session->initialize(5);
        for (int step = 1; step <= 2; ++step) {
          const int64_t passes = options.parallel.micro_batches / session->step().micro_batches;
          for (int64_t i = 0; i < passes; ++i) {
            const bool last = i + 1 == passes && !session->step().last_pass.commands.empty();
            const Executable& pass = last ? session->step().last_pass : session->step().pass;
            for (const Binding& input : pass.inputs) {
              if (input.name != "scale") write_input(*session, pass, input, options.parallel.at.data);
            }
            const float scale = 0.01f;
            for (const Binding& input : pass.inputs) {
              if (input.name == "scale") session->write(pass, "scale", std::as_bytes(std::span(&scale, 1)));
            }
            if (last) {
              session->run_last_pass();
            } else {
              session->run_pass();
            }
          }
          const float hyper[] = {1e-2f, 0.1f, static_cast<float>(step), 1.0f, 0.5f, 0.9f, 0.95f, 1e-8f};
          session->write(session->step().update, "hyper", std::as_bytes(std::span(hyper)));
          session->run_update();
        }
      });
    }
  }
  Weights weights;
  for (const auto& session : sessions) collect(*session, weights);
  return weights;
}

TEST(Ranks, EveryShardingOfTheDataAxisGivesTheSameBits) {
  for (Precision precision : {Precision::Fp32, Precision::Bf16}) {
    const MeshShape shape{.data = 3};
    const Weights ddp = train(shape, Strategy::Ddp, precision);
    ASSERT_FALSE(ddp.empty());
    for (Strategy strategy : {Strategy::Zero1, Strategy::Zero2, Strategy::Fsdp})
      EXPECT_EQ(ddp, train(shape, strategy, precision)) << static_cast<int>(strategy);
  }
}

TEST(Ranks, OffloadingChangesNoBit) {
  const MeshShape shape{.data = 2};
  const Weights plain = train(shape, Strategy::Fsdp, Precision::Bf16);
  EXPECT_EQ(plain, train(shape, Strategy::Fsdp, Precision::Bf16, [](ParallelOptions& parallel) {
              parallel.offload_optimizer = parallel.offload_weights = true;
            }));
  for (Strategy strategy : {Strategy::Ddp, Strategy::Zero1, Strategy::Zero2}) {
    EXPECT_EQ(plain, train(shape, strategy, Precision::Bf16,
                           [](ParallelOptions& parallel) { parallel.offload_optimizer = true; }));
  }
  EXPECT_EQ(train({}, Strategy::Single, Precision::Fp32),
            train({}, Strategy::Single, Precision::Fp32,
                  [](ParallelOptions& parallel) { parallel.offload_optimizer = true; }));
}

TEST(Ranks, AccumulationGivesTheSameBitsForEverySharding) {
  const auto twice = [](ParallelOptions& parallel) { parallel.micro_batches = 2; };
  const Weights ddp = train({.data = 2}, Strategy::Ddp, Precision::Fp32, twice);
  for (Strategy strategy : {Strategy::Zero1, Strategy::Zero2, Strategy::Fsdp})
    EXPECT_EQ(ddp, train({.data = 2}, strategy, Precision::Fp32, twice));
}

TEST(Ranks, ReducingOnceAStepGivesTheSameBitsForDdpAndZero1) {
  const auto once = [](ParallelOptions& parallel) {
    parallel.micro_batches = 3;
    parallel.reduce_once = true;
  };
  const Weights ddp = train({.data = 2}, Strategy::Ddp, Precision::Fp32, once);
  EXPECT_EQ(ddp, train({.data = 2}, Strategy::Zero1, Precision::Fp32, once));
  const Weights every = train({.data = 2}, Strategy::Ddp, Precision::Fp32,
                              [](ParallelOptions& parallel) { parallel.micro_batches = 3; });
  for (const auto& [name, values] : every) {
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(values[i], ddp.at(name)[i], 1e-5) << name << " " << i;
  }
}

TEST(Ranks, APipelineGivesTheBitsOfOneRankThatAccumulates) {
  const auto twice = [](ParallelOptions& parallel) { parallel.micro_batches = 2; };
  EXPECT_EQ(train({}, Strategy::Single, Precision::Fp32, twice),
            train({.pipeline = 2}, Strategy::Single, Precision::Fp32, twice));
}

TEST(Ranks, OutputsThatAreGivenAgainSuitEveryStrategy) {
  const auto again = [](const MeshShape& shape, Strategy strategy, int64_t micro_batches = 1) {
    const auto adjust = [=](ParallelOptions& parallel) { parallel.micro_batches = micro_batches; };
    return train(shape, strategy, Precision::Fp32, adjust, /*outputs_again=*/true);
  };
  const Weights ddp = again({.data = 2}, Strategy::Ddp);
  for (const auto& [name, values] : train({.data = 2}, Strategy::Ddp, Precision::Fp32)) {
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(values[i], ddp.at(name)[i], 1e-5) << name << " " << i;
  }
  for (Strategy strategy : {Strategy::Zero1, Strategy::Zero2, Strategy::Fsdp})
    EXPECT_EQ(ddp, again({.data = 2}, strategy)) << static_cast<int>(strategy);
  EXPECT_EQ(again({}, Strategy::Single, 2), again({.pipeline = 2}, Strategy::Single, 2));
  const Weights one = train({}, Strategy::Single, Precision::Fp32);
  const Weights split = again({.tensor = 2}, Strategy::Single);
  for (const auto& [name, values] : one) {
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(values[i], split.at(name)[i], 1e-5) << name << " " << i;
  }
}

TEST(Ranks, TheTensorAxisAndMixesStayCloseToOneRank) {
  const Weights one = train({}, Strategy::Single, Precision::Fp32);
  const Weights split = train({.tensor = 2}, Strategy::Single, Precision::Fp32);
  ASSERT_EQ(one.size(), split.size());
  for (const auto& [name, values] : one) {
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(values[i], split.at(name)[i], 1e-5) << name << " " << i;
  }
  const Weights data = train({.data = 2}, Strategy::Ddp, Precision::Fp32);
  const Weights mixed = train({.data = 2, .tensor = 2, .pipeline = 2}, Strategy::Fsdp, Precision::Fp32);
  for (const auto& [name, values] : data) {
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(values[i], mixed.at(name)[i], 1e-5) << name << " " << i;
  }
}

}  // namespace
}  // namespace tandem
