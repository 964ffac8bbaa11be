#include "tandem/config/validate_train.h"

#include <gtest/gtest.h>

#include "tandem/config/derive.h"
#include "tandem/config/print.h"
#include "tandem/config/rejection_test.h"

namespace tandem {
namespace {

TEST(TrainKeys, StepsFollowFromTokens) {
  const ResolvedConfig resolved =
      parse_config("model: {context: 64}\ntrain: {tokens: 1e6, batch: 16}", "run.yaml");
  EXPECT_EQ(resolved.config.train.steps, 977);  // 976.6 batches of 1024 tokens
  EXPECT_EQ(resolved.origin("train.steps"), "derived from train.tokens");
  EXPECT_EQ(resolved.config.train.warmup, 97);
  // What a run saves has both, and they agree.
  EXPECT_EQ(rejection(to_yaml(resolved.config)), "");
  EXPECT_EQ(
      rejection("model: {context: 64}\ntrain: {tokens: 1e6, batch: 16, steps: 100}"),
      "run.yaml:2: train.tokens: 1000000 is 977 steps, but train.steps is 100; keep one of the two keys");
  EXPECT_EQ(parse_config("train: {steps: 7}", "run.yaml", std::vector<Override>{{"train.tokens=81920"}})
                .config.train.steps,
            10);  // 32 sequences of 256 tokens a step
  EXPECT_EQ(parse_config("train: {tokens: 81920}", "run.yaml", std::vector<Override>{{"train.steps=7"}})
                .config.train.tokens,
            0);
  EXPECT_EQ(rejection("train: {tokens: 1e6, epochs: 2}"),
            "run.yaml:1: train.tokens and train.epochs both say how long to train; keep one");
}

TEST(TrainKeys, StepsFollowFromEpochsOnceTheSetIsKnown) {
  ResolvedConfig resolved = parse_config("train: {epochs: 2.5, batch: 16, schedule: wsd}", "run.yaml");
  derive_epochs(resolved, 1000);
  EXPECT_EQ(resolved.config.train.steps, 157);  // 2500 samples
  EXPECT_EQ(resolved.origin("train.steps"), "derived from train.epochs");
  EXPECT_EQ(resolved.config.train.warmup, 15);
  EXPECT_EQ(resolved.config.train.decay_steps, 15);
  ResolvedConfig both = parse_config("train: {epochs: 1, steps: 3, batch: 16}", "run.yaml");
  EXPECT_THROW(derive_epochs(both, 1000), ConfigError);
}

TEST(TrainKeys, GradientsAreClippedInOneWay) {
  const ResolvedConfig resolved = parse_config("train: {clip_value: 0.5}", "run.yaml");
  EXPECT_EQ(resolved.config.train.clip, 0);
  EXPECT_EQ(resolved.origin("train.clip"), "derived from train.clip_value");
  EXPECT_EQ(rejection(to_yaml(resolved.config)), "");
  EXPECT_EQ(
      rejection("train: {clip: 1, clip_value: 0.5}"),
      "run.yaml:1: train.clip_value: gradients are clipped by their norm or by value; remove train.clip or "
      "this");
}

TEST(TrainKeys, AnAverageTakesThePlaceOfASchedule) {
  const ResolvedConfig resolved = parse_config("train: {optimizer: schedule_free_adamw}", "run.yaml");
  EXPECT_EQ(resolved.config.train.schedule, ScheduleKind::Constant);
  EXPECT_EQ(
      rejection("train: {optimizer: schedule_free_adamw, schedule: cosine}"),
      "run.yaml:1: train.schedule: schedule_free_adamw averages weights where others let the rate fall; use "
      "constant");
  EXPECT_NE(rejection("train: {optimizer: schedule_free_adamw, optimizer_state: int8}"), "");
}

TEST(TrainKeys, ARampIsOfWholePassesAndRises) {
  EXPECT_EQ(rejection("train: {batch: 32, micro_batch: 4, batch_ramp: [[10, 8], [20, 16]]}"), "");
  EXPECT_EQ(
      rejection("train: {batch: 32, micro_batch: 4, batch_ramp: [[10, 6]]}"),
      "run.yaml:1: train.batch_ramp: expected multiples of train.micro_batch * parallel.data = 4 * 1 = 4, "
      "found 6");
  EXPECT_EQ(rejection("train: {batch: 32, micro_batch: 4, batch_ramp: [[10, 8], [10, 16]]}"),
            "run.yaml:1: train.batch_ramp: expected steps that rise, found 10 after 10");
  EXPECT_EQ(
      rejection("train: {batch: 32, micro_batch: 4, batch_ramp: [[10, 32]]}"),
      "run.yaml:1: train.batch_ramp: expected batches that rise and stay below train.batch = 32, found 32");
  EXPECT_EQ(
      rejection("train: {batch_ramp: [8, 16]}"),
      "run.yaml:1: train.batch_ramp: expected a list of [step, batch], such as [[100, 8], [200, 16]], found "
      "the list [8, 16]");
  EXPECT_NE(rejection("train: {batch: 32, micro_batch: 4, batch_ramp: [[10, 8]]}\nparallel: {pipeline: 2}"),
            "");
}

TEST(TrainKeys, SchedulesHaveTheirOwnSettings) {
  EXPECT_EQ(
      rejection("train: {schedule: cosine, decay_steps: 10}"),
      "run.yaml:1: train.decay_steps: train.schedule cosine has no such setting (it belongs to wsd); remove "
      "it");
  EXPECT_EQ(rejection("train: {schedule: wsd, decay_steps: 10}", {{"train.schedule=cosine"}}), "");
  EXPECT_EQ(rejection("train: {schedule: wsd, steps: 100, warmup: 60, decay_steps: 50}"),
            "run.yaml:1: 60 steps of warm-up and 50 of decay are more than train.steps = 100");
  EXPECT_EQ(rejection("train: {schedule: points}"),
            "run.yaml:1: train.schedule: points needs train.points, such as [[0, 0], [100, 1], [1000, 0.1]]");
  EXPECT_EQ(rejection("train: {schedule: points, points: [[0, 0], [100, 1]]}"), "");
  EXPECT_EQ(rejection("", {{"train.schedule=points"}, {"train.points=[[0, 0], [100, 1]]"}}), "");
  EXPECT_EQ(
      rejection("train: {schedule: points, points: [[0, 2]]}"),
      "run.yaml:1: train.points: expected a list of [step, fraction], such as [[100, 1], [200, 0.5]], found "
      "the list [[0, 2]]");
}

TEST(TrainKeys, AScaledRateNeedsItsBatch) {
  EXPECT_EQ(rejection("train: {lr_scaling: sqrt, lr_batch: 8}"), "");
  EXPECT_EQ(
      rejection("train: {lr_scaling: sqrt}"),
      "run.yaml:1: train.lr_scaling: sqrt needs train.lr_batch, the batch that train.lr was found with");
  EXPECT_EQ(
      rejection("train: {lr_batch: 8}"),
      "run.yaml:1: train.lr_batch: is used with train.lr_scaling: linear or sqrt; set that, or remove this");
}

TEST(TrainKeys, TermsOfTheLossWantAllLogits) {
  EXPECT_EQ(rejection("train: {label_smoothing: 0.1, z_loss: 1e-4}"), "");
  EXPECT_EQ(rejection("train: {label_smoothing: 1}"),
            "run.yaml:1: train.label_smoothing: expected a number of at least 0 and below 1, found '1'");
  EXPECT_EQ(rejection("train: {z_loss: 1e-4}\nparallel: {tensor: 2}"),
            "run.yaml:1: train.z_loss: the loss of a split vocabulary is plain cross-entropy; use "
            "parallel.tensor = 1");
}

TEST(TrainKeys, TheBestCheckpointIsBestInSomethingThatIsMeasured) {
  EXPECT_EQ(rejection("checkpoint: {best: eval_loss}"), "");
  EXPECT_EQ(rejection("checkpoint: {best: loss}"),
            "run.yaml:1: checkpoint.best: expected one of none, eval_loss, found 'loss'");
  EXPECT_EQ(rejection("data: {eval: [{path: builtin:stories, name: a}]}\ncheckpoint: {best: eval_loss/a}"),
            "");
  EXPECT_EQ(rejection("train: {ema: 0.9, ema_eval: true}\ncheckpoint: {best: eval_loss_ema}"), "");
  EXPECT_EQ(rejection("train: {ema: 0.9}\ncheckpoint: {best: eval_loss_ema}"),
            "run.yaml:2: checkpoint.best: evaluations are of the last weights only; set train.ema_eval");
  EXPECT_EQ(rejection("train: {ema_eval: true}"),
            "run.yaml:1: train.ema_eval: there is no average of the weights; set train.ema, such as 0.999");
  EXPECT_EQ(rejection("train: {ema: 0.9, ema_eval: true, eval_every: 0}"),
            "run.yaml:1: train.ema_eval: is for evaluations; set train.eval_every");
  EXPECT_EQ(rejection("train: {eval_every: 0}\ncheckpoint: {best: eval_loss}"),
            "run.yaml:2: checkpoint.best: is found by evaluations; set train.eval_every");
  EXPECT_EQ(rejection("train: {eval_every: 0, patience: 2}"),
            "run.yaml:1: train.patience: counts evaluations; set train.eval_every");
}

TEST(TrainKeys, EvaluationSetsHaveNamesOfTheirOwn) {
  const std::string two = "data: {eval: [{path: a.txt, name: books}, {path: b.txt, name: web}]}";
  const ResolvedConfig resolved = parse_config(two, "run.yaml");
  EXPECT_EQ(resolved.config.data.eval.sets[1].name, "web");
  EXPECT_EQ(parse_config(to_yaml(resolved.config), "again.yaml").config.data.eval, resolved.config.data.eval);
  EXPECT_EQ(rejection("data: {eval: [{path: a.txt, name: books}, {path: b.txt, name: books}]}"),
            "run.yaml:1: data.eval: two sets are called 'books'");
  EXPECT_EQ(rejection("data: {eval: [{path: a.txt, name: books}, {path: b.txt}]}"),
            "run.yaml:1: data.eval: expected a name for each set, or for none; 'b.txt' has none");
  EXPECT_NE(rejection("data: {eval: [{path: a.txt, name: a/b}]}"), "");
  EXPECT_NE(rejection("data: {train: [{path: a.txt, name: a}]}"), "");
}

TEST(TrainKeys, GroupsAreTablesOfAPatternAndWhatItIsFor) {
  const ResolvedConfig resolved = parse_config(
      "train:\n  groups:\n    - {match: \"embed.*\", lr: 0.1, decay: 0}\n    - {match: blocks.0.*, frozen: "
      "true}",
      "run.yaml");
  const std::vector<TrainGroup> expected = {{.match = "embed.*", .lr = 0.1, .decay = 0},
                                            {.match = "blocks.0.*", .frozen = true}};
  EXPECT_EQ(resolved.config.train.groups, expected);
  EXPECT_EQ(rejection(to_yaml(resolved.config)), "");
  const std::vector<Override> set = {{"train.groups=[{match: x, lr: 2}]"}};
  EXPECT_EQ(parse_config("", "run.yaml", set).config.train.groups,
            (std::vector<TrainGroup>{{.match = "x", .lr = 2}}));
}

TEST(TrainKeys, GroupsThatMeanNothingAreRefused) {
  EXPECT_EQ(rejection("train: {groups: [{lr: 0.1}]}"),
            "run.yaml:1: train.groups: expected match, a pattern of names, in {lr: 0.1}");
  EXPECT_EQ(rejection("train: {groups: [{match: a, rate: 0.1}]}"),
            "run.yaml:1: train.groups: expected match, lr, decay and frozen, found 'rate' in {match: a, "
            "rate: 0.1}");
  EXPECT_EQ(rejection("train: {groups: [{match: a, lr: -1}]}"),
            "run.yaml:1: train.groups: lr: expected a number of at least 0, found '-1'");
  EXPECT_EQ(rejection("train: {groups: [{match: a, lr: 2, frozen: true}]}"),
            "run.yaml:1: train.groups: 'a' is frozen, which leaves nothing for lr and decay; remove them, or "
            "frozen");
  EXPECT_EQ(rejection("train: {groups: [{match: a, lr: 2, lr: 3}]}"),
            "run.yaml:1: train.groups: 'lr' is given twice in {match: a, lr: 2, lr: 3}; keep one");
  EXPECT_NE(rejection("data: {train: [{path: a, path: b}]}").find("'path' is given twice"),
            std::string::npos);
  EXPECT_NE(rejection("train: {groups: embed}").find("expected a list such as [{match:"), std::string::npos);
}

}  // namespace
}  // namespace tandem
