#include "tandem/convert/convert.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/base/message_of_test.h"
#include "tandem/base/temporary_directory_test.h"

namespace tandem::convert {
namespace {

class Convert : public testing::Test {
 protected:
  // The config that a file of this text gives. What it says is in `said`.
  Config convert(std::string_view name, std::string_view text, std::optional<int64_t> ranks = {}) {
    const Converted converted = convert_file({directory_.write(name, text), "", ranks});
    format = converted.format;
    said.clear();
    for (const Finding& finding : converted.findings) said += to_string(finding) + "\n";
    return parse_config(converted.yaml, "converted.yaml").config;
  }
  std::string refused(std::string_view name, std::string_view text) {
    return message_of<ConfigError>([&] { convert(name, text); });
  }
  bool was_said(std::string_view line) const { return said.find(line) != std::string::npos; }

  TemporaryDirectory directory_;
  std::string format, said;
};

TEST_F(Convert, StagesOfZeroAreStrategies) {
  const Strategy strategies[] = {Strategy::Ddp, Strategy::Zero1, Strategy::Zero2, Strategy::Fsdp};
  for (int stage = 0; stage < 4; ++stage) {
    const Config config =
        convert("ds.json", fmt::format(R"({{"zero_optimization": {{"stage": {}}}}})", stage));
    EXPECT_EQ(strategies[stage], config.parallel.strategy);
    EXPECT_EQ("deepspeed", format);
  }
  EXPECT_NE(std::string::npos,
            refused("ds.json", R"({"zero_optimization": {"stage": 4}})").find("stage: expected 0"));
}

TEST_F(Convert, WhatDeepSpeedDoesUnlessToldIsWritten) {
  const Config config = convert("ds.json", R"({"train_batch_size": 8, "optimizer": {"type": "Adam"}})");
  EXPECT_EQ(0, config.train.clip);
  EXPECT_EQ(0, config.train.weight_decay);
  EXPECT_EQ(0.999, config.train.hyper[hyper_key_index("train.beta2")]);
  EXPECT_EQ(8, config.train.batch);
}

TEST_F(Convert, LossScalesGoOver) {
  const Config config =
      convert("ds.json", R"({"fp16": {"enabled": true, "initial_scale_power": 10, "loss_scale_window": 7}})");
  EXPECT_EQ(Precision::Fp16, config.precision);
  EXPECT_EQ(1024, config.train.loss_scale);
  EXPECT_EQ(7, config.train.loss_scale_window);
  EXPECT_NE(std::string::npos,
            refused("ds.json", R"({"fp16": {"enabled": true}, "bf16": {"enabled": true}})").find("both"));
}

TEST_F(Convert, SchedulersOfDeepSpeed) {
  const auto with = [&](const char* type) {
    return convert("ds.json", fmt::format(R"({{"train_batch_size": 8, "scheduler": {{"type": "{}",
        "params": {{"warmup_num_steps": 5, "total_num_steps": 50, "warmup_max_lr": 0.5, "cos_min_ratio": 0.2}}}}}})",
                                          type))
        .train;
  };
  EXPECT_EQ(ScheduleKind::Constant, with("WarmupLR").schedule);
  EXPECT_EQ(ScheduleKind::Linear, with("WarmupDecayLR").schedule);
  const TrainConfig cosine = with("WarmupCosineLR");
  EXPECT_EQ(ScheduleKind::Cosine, cosine.schedule);
  EXPECT_EQ(0.2, cosine.min_lr);
  EXPECT_EQ(5, cosine.warmup);
  EXPECT_EQ(50, cosine.steps);
  EXPECT_EQ(0.5, cosine.lr);
  EXPECT_TRUE(was_said("scheduler.params.warmup_type = log"));
}

TEST_F(Convert, SchedulesWithAStablePhase) {
  const TrainConfig trainer =
      convert("args.json",
              R"({"max_steps": 100, "lr_scheduler_type": "warmup_stable_decay", "warmup_steps": 5,
          "lr_scheduler_kwargs": {"num_decay_steps": 20, "min_lr_ratio": 0.1, "decay_type": "1-sqrt"}})")
          .train;
  EXPECT_EQ(ScheduleKind::Wsd, trainer.schedule);
  EXPECT_EQ(20, trainer.decay_steps);
  EXPECT_EQ(DecayShape::Sqrt, trainer.decay_shape);
  EXPECT_EQ(0.1, trainer.min_lr);
  const TrainConfig titan = convert("t.toml",
                                    "[training]\nsteps = 100\n[lr_scheduler]\nwarmup_steps = 10\n"
                                    "decay_ratio = 0.8\ndecay_type = 'cosine'\n",
                                    1)
                                .train;
  EXPECT_EQ(ScheduleKind::Wsd, titan.schedule);
  EXPECT_EQ(80, titan.decay_steps);
  EXPECT_EQ(DecayShape::Cosine, titan.decay_shape);
}

TEST_F(Convert, TheBestCheckpointAndWhenToStop) {
  const Config config =
      convert("args.json", R"({"output_dir": "a", "max_steps": 100, "load_best_model_at_end": true,
      "metric_for_best_model": "eval_loss", "eval_strategy": "steps", "eval_steps": 10, "eval_on_start": true,
      "early_stopping_patience": 3, "early_stopping_threshold": 0.25})");
  EXPECT_EQ("eval_loss", config.checkpoint.best);
  EXPECT_TRUE(config.train.eval_at_start);
  EXPECT_EQ(3, config.train.patience);
  EXPECT_EQ(0.25, config.train.min_delta);
  convert(
      "args.json",
      R"({"output_dir": "a", "max_steps": 100, "load_best_model_at_end": true, "metric_for_best_model": "f1",
      "eval_strategy": "steps", "eval_steps": 10})");
  EXPECT_TRUE(was_said("metric_for_best_model = f1"));
}

TEST_F(Convert, ShardingByNameAndNumber) {
  const std::pair<const char*, Strategy> cases[] = {{"FULL_SHARD", Strategy::Fsdp},
                                                    {"1", Strategy::Fsdp},
                                                    {"SHARD_GRAD_OP", Strategy::Zero2},
                                                    {"2", Strategy::Zero2},
                                                    {"NO_SHARD", Strategy::Ddp},
                                                    {"3", Strategy::Ddp},
                                                    {"HYBRID_SHARD", Strategy::Fsdp},
                                                    {"4", Strategy::Fsdp},
                                                    {"HYBRID_SHARD_ZERO2", Strategy::Zero2},
                                                    {"5", Strategy::Zero2}};
  for (const auto& [word, strategy] : cases) {
    const Config config = convert(
        "a.yaml",
        fmt::format("distributed_type: FSDP\nnum_processes: 4\nfsdp_config:\n  fsdp_sharding_strategy: {}\n",
                    word));
    EXPECT_EQ(strategy, config.parallel.strategy) << word;
    EXPECT_EQ(4, config.parallel.data);
    EXPECT_EQ("accelerate", format);
  }
  EXPECT_TRUE(was_said("fsdp_config.sharding_strategy = 5"));
  EXPECT_EQ(
      Strategy::Zero2,
      convert("a.yaml",
              "distributed_type: FSDP\nfsdp_config: {fsdp_version: 2, fsdp_reshard_after_forward: false}\n")
          .parallel.strategy);
}

TEST_F(Convert, AxesWaitForAModel) {
  const Config config = convert(
      "a.yaml",
      "distributed_type: FSDP\nnum_processes: 16\nparallelism_config: {parallelism_config_tp_size: 8}\n");
  EXPECT_EQ(1, config.parallel.tensor);
  EXPECT_EQ(2, config.parallel.data);
  EXPECT_TRUE(was_said("to do: parallel.tensor: set it to 8"));
}

TEST_F(Convert, WhatTrainerDoesUnlessToldIsWritten) {
  const Config config =
      convert("args.json", R"({"output_dir": "out/a b", "max_steps": 100, "warmup_ratio": 0.031})");
  EXPECT_EQ("trainer", format);
  EXPECT_EQ("a-b", config.name);
  EXPECT_EQ(5e-5, config.train.lr);
  EXPECT_EQ(ScheduleKind::Linear, config.train.schedule);
  EXPECT_EQ(0, config.train.min_lr);
  EXPECT_EQ(4, config.train.warmup);
  EXPECT_EQ(0, config.train.weight_decay);
  EXPECT_EQ(42, config.train.seed);
  EXPECT_EQ(0, config.train.eval_every);
  EXPECT_EQ(500, config.checkpoint.every.steps);
  EXPECT_EQ(0, config.checkpoint.keep);
  EXPECT_EQ(8, config.train.batch);
  EXPECT_EQ(Strategy::Single, config.parallel.strategy);
}

TEST_F(Convert, RanksThatAreGivenScaleTheBatch) {
  const Config config =
      convert("args.json", R"({"per_device_train_batch_size": 2, "gradient_accumulation_steps": 3})", 4);
  EXPECT_EQ(24, config.train.batch);
  EXPECT_EQ(2, config.train.micro_batch);
  EXPECT_EQ(4, config.parallel.data);
  EXPECT_EQ(Strategy::Ddp, config.parallel.strategy);
  EXPECT_EQ(3, config.train.epochs);
}

TEST_F(Convert, ArgumentsFillInWhatDeepSpeedLeavesToThem) {
  const Config config =
      convert("args.json", R"({"learning_rate": 0.25, "weight_decay": 0.5, "max_grad_norm": 2, "bf16": true,
      "warmup_steps": 9, "max_steps": 90, "per_device_train_batch_size": 5, "deepspeed": {
        "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}, "bf16": {"enabled": "auto"},
        "gradient_clipping": "auto", "train_micro_batch_size_per_gpu": "auto",
        "optimizer": {"type": "AdamW", "params": {"lr": "auto", "weight_decay": "auto", "betas": "auto"}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": "auto", "warmup_type": "linear"}}}})");
  EXPECT_FALSE(was_said("auto")) << said;
  EXPECT_EQ(0.25, config.train.lr);
  EXPECT_EQ(0.5, config.train.weight_decay);
  EXPECT_EQ(2, config.train.clip);
  EXPECT_EQ(9, config.train.warmup);
  EXPECT_EQ(5, config.train.micro_batch);
  EXPECT_EQ(Precision::Bf16, config.precision);
  EXPECT_EQ(Strategy::Fsdp, config.parallel.strategy);
  EXPECT_TRUE(config.memory.offloads(OffloadKind::Params));
}

TEST_F(Convert, AModelOfTorchtitanHasItsSizes) {
  const Config config =
      convert("t.toml", "[model]\nname = 'llama3'\nflavor = '8B'\n[training]\nseq_len = 4096\n", 8);
  EXPECT_EQ("torchtitan", format);
  EXPECT_EQ(14336, config.model.ffn);
  EXPECT_EQ(8, config.model.kv_heads);
  EXPECT_EQ(4096, config.model.context);
  EXPECT_EQ(Precision::Bf16, config.precision);
  EXPECT_EQ(64, config.train.batch);  // 8 a rank
  EXPECT_EQ(Strategy::Fsdp, config.parallel.strategy);
  EXPECT_EQ(2, config.memory.recompute.every);
}

TEST_F(Convert, RefusesWhatItDoesNotKnow) {
  EXPECT_NE(std::string::npos, refused("a.json", R"({"hidden_size": 4})").find("by its keys"));
  EXPECT_NE(std::string::npos, refused("a.yaml", "train: {steps: 1}\nmodel: {}\n").find("of Tandem already"));
  EXPECT_NE(std::string::npos, refused("a.json", R"({"train_batch_size": "many"})")
                                   .find("train_batch_size: expected a whole number, found many"));
  EXPECT_NE(std::string::npos,
            refused("a.json", R"({"learning_rate": -1})").find("does not make a config that loads"));
  EXPECT_NE(
      std::string::npos,
      refused("a.json", R"({"learning_rate": 1, "model_name_or_path": "a\u0000b"})").find("expected a word"));
  EXPECT_THROW(convert_file({directory_.write("b.json", R"({"output_dir": "a"})"), "keras", {}}),
               ConfigError);
}

}  // namespace
}  // namespace tandem::convert
