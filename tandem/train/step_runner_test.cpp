#include "tandem/train/step_runner.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tandem/base/error.h"
#include "tandem/config/load.h"
#include "tandem/kernels/cpu/backend.h"
#include "tandem/train/run_session.h"

namespace tandem {
namespace {

constexpr int64_t kBatch = 4, kContext = 16, kVocab = 256;

class StepRunnerTest : public testing::Test {
 protected:
  StepRunner& start(int64_t micro_batch) {
    config_ =
        parse_config(
            fmt::format("threads: 1\ntrain: {{batch: {}, micro_batch: {}, lr: 1e-2, warmup: 0, groups: {}}}\n"
                        "model: {{layers: 1, width: 16, heads: 2, context: {}, vocab: {}}}\n"
                        "precision: {}\nparallel: {{reproducible: {}}}\n",
                        kBatch, micro_batch, groups_, kContext, kVocab, precision_, reproducible_),
            "config")
            .config;
    run_ = std::make_unique<RunSession>(config_, backend_, model_, world_);
    run_->session().initialize(1);
    return run_->runner();
  }

  const Backend backend_ = cpu::make_backend();
  const World world_;
  std::string groups_ = "[]", precision_ = "fp32", reproducible_ = "mesh";
  BuildModel model_ = build_model;
  Config config_;
  std::unique_ptr<RunSession> run_;
};

TEST_F(StepRunnerTest, AStepTellsWhatItHasDone) {
  StepRunner& runner = start(kBatch);
  const StepResult first = runner.run(1);
  EXPECT_EQ(first.targets, kBatch * kContext);
  EXPECT_NEAR(first.loss, std::log(kVocab), 0.1) << "nothing is learned yet";
  EXPECT_GT(first.grad_norm, 0);
  EXPECT_TRUE(first.applied);
  EXPECT_FALSE(first.stop);
  EXPECT_EQ(runner.updates(), 1);
  EXPECT_EQ(run_->loader().position(), kBatch);
  StepResult result;
  for (int64_t step = 2; step <= 8; ++step) result = runner.run(step);
  EXPECT_LT(result.loss, first.loss);
  EXPECT_EQ(runner.updates(), 8);
}

TEST_F(StepRunnerTest, GroupsHaveNormsThatAddUpToThatOfAll) {
  std::vector<std::pair<std::string, float>> of_mesh;
  for (const char* reproducible : {"mesh", "layout"}) {
    for (const char* precision : {"fp32", "fp16"}) {  // fp16: of gradients of a loss that is scaled
      reproducible_ = reproducible;
      precision_ = precision;
      groups_ = "[]";
      const double without = start(kBatch).run(1).grad_norm;
      groups_ =
          "[{match: '*.bias', lr: 0.5}, {match: 'blocks.*'}, {match: 'embed.weight', frozen: true}, {match: "
          "'*'}]";
      const StepResult result = start(kBatch).run(1);
      ASSERT_EQ(result.group_norms.size(), 3u);
      EXPECT_EQ(result.group_norms[0].first, "grad_norm/*.bias");
      EXPECT_EQ(result.group_norms[1].first, "grad_norm/blocks.*");
      EXPECT_EQ(result.group_norms[2].first, "grad_norm/*");
      double squares = 0;
      for (size_t i = 0; i < result.group_norms.size(); ++i) {
        const auto& [name, norm] = result.group_norms[i];
        EXPECT_GT(norm, 0) << name;
        squares += std::pow(static_cast<double>(norm), 2);
        if (precision_ == "fp32" && reproducible_ == "mesh") of_mesh.emplace_back(name, norm);
        EXPECT_NEAR(norm, of_mesh[i].second, (precision_ == "fp32" ? 1e-6 : 2e-2) * of_mesh[i].second)
            << name;
      }
      EXPECT_NEAR(std::sqrt(squares), result.grad_norm, 1e-6 * result.grad_norm);
      EXPECT_GT(without, result.grad_norm) << "of what is frozen there is none";
    }
  }
}

TEST_F(StepRunnerTest, PassesOfABatchAddUpToTheBatch) {
  std::vector<StepResult> whole;
  for (const int64_t micro_batch : {kBatch, kBatch / 2, int64_t{1}}) {
    StepRunner& runner = start(micro_batch);
    for (int64_t step = 1; step <= 3; ++step) {
      const StepResult result = runner.run(step);
      if (micro_batch == kBatch) {
        whole.push_back(result);
        continue;
      }
      const StepResult& expected = whole[static_cast<size_t>(step - 1)];
      EXPECT_NEAR(result.loss, expected.loss, 1e-5);
      EXPECT_NEAR(result.grad_norm, expected.grad_norm, 1e-5 * expected.grad_norm);
      EXPECT_EQ(result.targets, expected.targets);
    }
  }
}

// A mean over the whole batch, however it is cut into passes, and of each step by itself.
TEST_F(StepRunnerTest, AModelsOwnMetricsAreMeansOverTheBatch) {
  model_ = own_model([](Builder& b, const ModelConfig& c) {
    const Value x = b.embedding(c.vocab, c.width, false);
    b.metric("mean", x);
    b.metric("stream/square", x, /*squares=*/true);
    b.cross_entropy(b.linear(x, c.vocab, "head"));
  });
  std::vector<StepResult> whole;
  for (const int64_t micro_batch : {kBatch, int64_t{1}}) {
    StepRunner& runner = start(micro_batch);
    for (int64_t step = 1; step <= 3; ++step) {
      const StepResult result = runner.run(step);
      ASSERT_EQ(result.metrics.size(), 2u);
      EXPECT_EQ(result.metrics[0].first, "metric/mean");
      EXPECT_EQ(result.metrics[1].first, "metric/stream/square");
      if (micro_batch == kBatch) {
        whole.push_back(result);
        // Weights begin normal, with deviation 0.02.
        if (step == 1) {
          EXPECT_NEAR(result.metrics[1].second, 4e-4, 1e-4);
        }
        continue;
      }
      for (size_t i = 0; i < 2; ++i)
        EXPECT_NEAR(result.metrics[i].second, whole[static_cast<size_t>(step - 1)].metrics[i].second, 1e-6);
    }
  }
  EXPECT_NE(whole[0].metrics[1].second, whole[1].metrics[1].second);
}

TEST_F(StepRunnerTest, MetricsThatCannotBeAreRefused) {
  const auto refusal = [](const std::function<void(Builder&, Value)>& write) -> std::string {
    try {
      Builder b = Builder::for_tokens(1, kContext);
      const Value x = b.embedding(kVocab, 8, false);
      write(b, x);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal([](Builder& b, Value x) { b.metric("a b", x); }),
            "metric 'a b': expected a name of letters, digits, '.', '_', '-' and '/'");
  EXPECT_EQ(refusal([](Builder& b, Value x) { b.metric("a", x), b.metric("a", x); }),
            "metric 'a': two have this name");
  EXPECT_EQ(refusal([](Builder& b, Value x) {
              b.cross_entropy(b.linear(x, kVocab, "head"));
              b.metric("a", x);
            }),
            "metric 'a': a model ends with cross_entropy; declare it before");
}

TEST_F(StepRunnerTest, ARequestToStopComesBackWithTheStep) {
  StepRunner& runner = start(kBatch);
  EXPECT_TRUE(runner.run(1, /*stop=*/true).stop);
  EXPECT_FALSE(runner.run(2).stop);
}

TEST_F(StepRunnerTest, AStepWithoutFiniteGradientsIsNotApplied) {
  StepRunner& runner = start(kBatch);
  const Persistent* weight = run_->session().step().find("blocks.0.attn.qkv.weight");
  if (weight == nullptr) weight = &run_->session().step().persistents.front();
  const float nan = NAN;
  run_->session().write_buffer(weight->slice, 0, std::as_bytes(std::span(&nan, 1)));
  EXPECT_FALSE(runner.run(1).applied);
  EXPECT_EQ(runner.updates(), 0);
}

}  // namespace
}  // namespace tandem
