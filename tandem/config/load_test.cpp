#include "tandem/config/load.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tandem/base/temporary_directory_test.h"
#include "tandem/config/rejection_test.h"

namespace tandem {
namespace {

constexpr char kYaml[] = R"(name: small
threads: 2
model: {family: gpt2, layers: 2, width: 64, heads: 4}
train:
  steps: 20
  lr: 3.0e-4
memory: {recompute: every:2, limit: 2GiB}
)";

TEST(LoadConfig, ReadsBlockAndFlowStyleAndKeepsDefaults) {
  const Config config = parse_config(kYaml, "run.yaml").config;
  EXPECT_EQ(config.name, "small");
  EXPECT_EQ(config.threads, 2);
  EXPECT_EQ(config.model.layers, 2);
  EXPECT_EQ(config.train.steps, 20);
  EXPECT_EQ(config.train.lr, 3e-4);
  EXPECT_EQ(config.memory.recompute, (Recompute{RecomputeKind::Every, 2}));
  EXPECT_EQ(config.memory.limit, 2LL << 30);
  EXPECT_EQ(config.train.batch, Config{}.train.batch);
}

TEST(LoadConfig, SaysWhereEachValueCameFrom) {
  const ResolvedConfig resolved = parse_config(kYaml, "run.yaml", {{Override{"train.lr=0.5"}}});
  EXPECT_EQ(resolved.origin("model.width"), "run.yaml:3");
  EXPECT_EQ(resolved.origin("train.steps"), "run.yaml:5");
  EXPECT_EQ(resolved.origin("train.lr"), "--set");
  EXPECT_EQ(resolved.origin("train.batch"), "default");
  EXPECT_EQ(resolved.origin("model.ffn"), "derived from model.width");
}

TEST(LoadConfig, AnotherOptimizerLeavesTheFilesKeysOfTheFirstOut) {
  const std::string yaml = "train: {optimizer: adamw, beta2: 0.99, weight_decay: 0.2}";
  const std::vector<Override> overrides = {{"train.optimizer=sgd"}};
  const ResolvedConfig resolved = parse_config(yaml, "run.yaml", overrides);
  EXPECT_EQ(resolved.origin("train.beta2"), "default");
  EXPECT_EQ(resolved.origin("train.weight_decay"), "run.yaml:1");
  EXPECT_EQ(rejection(yaml, {{"train.optimizer=sgd"}, {"train.beta2=0.9"}}),
            "--set train.beta2: sgd has no such setting (it belongs to adamw, lion, muon, lamb, "
            "schedule_free_adamw); remove it");
}

TEST(LoadConfig, LetsTheLastOverrideWinAndReadsLists) {
  const std::vector<Override> overrides = {{"train.steps=5"}, {"train.steps=7"}, {"device=cpu", "--device"}};
  const ResolvedConfig resolved = parse_config(kYaml, "run.yaml", overrides);
  EXPECT_EQ(resolved.config.train.steps, 7);
  EXPECT_EQ(resolved.config.device, DeviceKind::Cpu);
  EXPECT_EQ(resolved.origin("device"), "--device");
  const std::vector<Override> stages = {{"model.family=resnet"}, {"model.blocks=[1, 2]"}};
  EXPECT_EQ(parse_config("", "run.yaml", stages).config.model.blocks, (std::vector<int64_t>{1, 2}));
}

TEST(LoadConfig, AcceptsAnEmptyFileAndAnEmptySection) {
  EXPECT_EQ(rejection(""), "");
  EXPECT_EQ(rejection("# only a comment\ntrain:\n"), "");
}

TEST(LoadConfig, ReadsAFileAndNamesTheRunAfterIt) {
  const TemporaryDirectory directory;
  const ResolvedConfig resolved = load_config(directory.write("tiny.yaml", "train: {steps: 3}\n"));
  EXPECT_EQ(resolved.config.train.steps, 3);
  EXPECT_EQ(resolved.config.name, "tiny");
  EXPECT_EQ(resolved.origin("name"), "derived from tiny.yaml");
}

TEST(LoadConfig, RefusesAMissingFileAndADirectory) {
  const auto message = [](const std::string& path) -> std::string {
    try {
      load_config(path);
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::BadUsage);
      return error.what();
    }
    return "";
  };
  const std::string here = std::filesystem::current_path().string();
  EXPECT_EQ(message("absent.yaml"), "absent.yaml: no such file in " + here +
                                        "; expected a YAML config, such as configs/quickstart.yaml");
  const TemporaryDirectory directory;
  const std::string nearest = directory.write("my-tiny-model-large.yaml", "").string();
  const std::string asked = (directory.path() / "my-tiny-model.yaml").string();
  EXPECT_EQ(message(asked), asked + ": no such file; did you mean " + nearest + "?");
  EXPECT_EQ(message("."), ".: is a directory; expected a YAML config, such as configs/quickstart.yaml");
}

TEST(LoadConfig, NamesTheNearestOfAnUnknownKey) {
  EXPECT_EQ(rejection("name: a\ntrain: {step: 3}"),
            "run.yaml:2: train.step: no such key; did you mean train.steps?");
  EXPECT_EQ(rejection("trian: {steps: 3}"), "run.yaml:1: trian: no such key; did you mean train?");
  EXPECT_EQ(rejection("lr: 3"), "run.yaml:1: lr: no such key; did you mean train.lr?");
  EXPECT_EQ(rejection("", {{"train.stepz=3"}}), "--set train.stepz: no such key; did you mean train.steps?");
}

TEST(LoadConfig, RefusesAWrongType) {
  EXPECT_EQ(rejection("train:\n  steps: many"),
            "run.yaml:2: train.steps: expected a whole number of at least 1, found 'many'");
  EXPECT_EQ(rejection("train: {lr: fast}"),
            "run.yaml:1: train.lr: expected a number of at least 0, found 'fast'");
  EXPECT_EQ(rejection("log: {csv: yes}"),
            "run.yaml:1: log.csv: expected true or false, found 'yes'; use true");
  EXPECT_EQ(rejection("name: [a, b]"), "run.yaml:1: name: expected text, found the list [a, b]");
  EXPECT_EQ(rejection("train:\n  steps:"),
            "run.yaml:2: train.steps: expected a whole number of at least 1, found nothing");
  EXPECT_EQ(rejection("train: 3"),
            "run.yaml:1: train: expected keys under it, such as train.steps, found a value");
  EXPECT_EQ(rejection("precision: {a: b}"),
            "run.yaml:1: precision: expected one of fp32, bf16, fp16, fp8, found keys below it");
  EXPECT_EQ(rejection("", {{"log.csv=1"}}), "--set log.csv: expected true or false, found '1'; use true");
  EXPECT_EQ(rejection("", {{"log.csv=off"}}),
            "--set log.csv: expected true or false, found 'off'; use false");
  EXPECT_EQ(rejection("log: {csv: False}", {{"log.jsonl=TRUE"}}), "") << "as YAML spells them";
  EXPECT_EQ(rejection("", {{"train.lr=0,001"}}),
            "--set train.lr: expected a number of at least 0, found '0,001'; use 0.001");
  EXPECT_EQ(
      rejection("model: {family: resnet, blocks: [[1], 2]}"),
      "run.yaml:1: model.blocks: expected a list of whole numbers of at least 1 and at most 2048, such as "
      "[2, 2, 2], found the list [[1], 2]");
}

TEST(LoadConfig, RefusesAValueOutOfRange) {
  EXPECT_EQ(rejection("train: {steps: 0}"),
            "run.yaml:1: train.steps: expected a whole number of at least 1, found '0'");
  EXPECT_EQ(
      rejection("train: {steps: 3e9}"),
      "run.yaml:1: train.steps: expected a whole number of at least 1 and at most 2147483647, found '3e9'");
  EXPECT_EQ(rejection("train: {beta1: 1}"),
            "run.yaml:1: train.beta1: expected a number of at least 0 and below 1, found '1'");
  EXPECT_EQ(rejection("memory: {limit: -1}"),
            "run.yaml:1: memory.limit: expected a number of bytes, such as 512MiB or 2GB, found '-1'");
}

TEST(LoadConfig, ListsTheAllowedNamesAndTheNearest) {
  EXPECT_EQ(rejection("precision: bf61"),
            "run.yaml:1: precision: expected one of fp32, bf16, fp16, fp8, found 'bf61'; did you mean bf16?");
  EXPECT_EQ(rejection("memory: {offload: [param]}"),
            "run.yaml:1: memory.offload: expected one of params, optimizer, activations, found 'param'; did "
            "you mean "
            "params?");
  EXPECT_EQ(rejection("memory: {recompute: every:0}"),
            "run.yaml:1: memory.recompute: expected none, full, every:K (K at least 1), selective, "
            "all_but_attention or auto, found "
            "'every:0'");
}

TEST(LoadConfig, RefusesAKeyGivenTwice) {
  EXPECT_EQ(rejection("train:\n  steps: 3\n  lr: 1\n  steps: 4\n"),
            "run.yaml:4: train.steps: given twice, first at run.yaml:2; keep one");
}

TEST(LoadConfig, GivesTheLineOfInvalidYaml) {
  const std::string message = rejection("name: a\ntrain: {steps: 3\nlog: {csv: true}\n");
  EXPECT_TRUE(message.starts_with("run.yaml:3: not valid YAML: ")) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos);
}

TEST(LoadConfig, SaysThatTabsDoNotIndent) {
  EXPECT_EQ(rejection("name: a\nmodel:\n\tlayers: 2\n"),
            "run.yaml:3: not valid YAML: indented by a tab; use spaces");
}

TEST(LoadConfig, TakesZero3AsFsdp) {
  const Config config = parse_config("parallel: {strategy: zero3, data: 2}", "run.yaml").config;
  EXPECT_EQ(config.parallel.strategy, Strategy::Fsdp);
}

TEST(LoadConfig, RefusesYamlThatIsNoTableOfKeys) {
  EXPECT_EQ(rejection("train.lr = 3e-4\n"),
            "run.yaml:1: expected `key: value` pairs, found 'train.lr = 3e-4'");
  EXPECT_EQ(rejection("- a\n- b\n"), "run.yaml:1: expected `key: value` pairs");
  EXPECT_EQ(rejection("[a]: b\n"), "run.yaml:1: expected the name of a key");
  const std::string more = "expected one YAML document, found more behind it; remove it, or split the file";
  EXPECT_EQ(rejection("name: a\n---\nname: b\n"), "run.yaml:2: " + more);
  EXPECT_EQ(rejection("name: a\n...\njunk\n"), "run.yaml:3: " + more);
  EXPECT_EQ(rejection("{name: a} junk\n"), "run.yaml:1: " + more);
  EXPECT_EQ(rejection("{name: a}, 3\n"), "run.yaml:1: " + more) << "where yaml-cpp finds no end";
  EXPECT_EQ(rejection("---\nname: a\n...\n"), "");
}

TEST(LoadConfig, RefusesAnOverrideWithoutAValue) {
  EXPECT_EQ(rejection("", {{"train.steps"}}),
            "--set train.steps: expected key=value, such as --set train.steps=300");
  EXPECT_EQ(rejection("", {{"=3"}}), "--set =3: expected key=value, such as --set train.steps=100");
  const std::string message = rejection("model: {family: resnet}", {{"model.blocks=[1"}});
  EXPECT_TRUE(message.starts_with("--set model.blocks: expected a list such as [2, 2], found '[1'"))
      << message;
}

TEST(LoadConfig, RefusesWhatFollowsAnOverridesList) {
  const std::string yaml = "model: {family: resnet, width: 8, image_size: 32, norm: batch}";
  for (const std::string text :
       {"[2, 2] junk", "[2, 2]junk", "[2, 2], 3", "[2, 2] [3]", "[2, 2]: 3", "[2, 2] \"x\""}) {
    EXPECT_EQ(rejection(yaml, {{"model.blocks=" + text}}),
              "--set model.blocks: expected a list such as [2, 2], found '" + text + "' (more than a list)");
  }
  EXPECT_EQ(
      rejection(yaml, {{"model.blocks=[2, 2]\n---\n3"}}),
      "--set model.blocks: expected a list such as [2, 2], found '[2, 2]\\n---\\n3' (more than a list)");
  EXPECT_EQ(rejection(yaml, {{"model.blocks=[2, 2] "}}), "");
  EXPECT_EQ(rejection("", {{"train.steps=3\njunk"}}),
            "--set train.steps: expected a whole number of at least 1, found '3\\njunk'");
  EXPECT_EQ(
      rejection("", {{"memory.offload=[optimizer] junk"}}),
      "--set memory.offload: expected a list such as [2, 2], found '[optimizer] junk' (more than a list)");
}

TEST(LoadConfig, RefusesNumbersThatFp32DoesNotHold) {
  EXPECT_EQ(rejection("train: {lr: 1e300}"),
            "run.yaml:1: train.lr: expected a finite number of at least 0 in fp32, found '1e300'");
  EXPECT_EQ(rejection("", {{"train.clip=3.5e38"}}),
            "--set train.clip: expected a finite number of at least 0 in fp32, found '3.5e38'");
  EXPECT_EQ(rejection("", {{"train.eps=1e-60"}}),
            "--set train.eps: expected a finite number above 0 in fp32, found '1e-60'");
  EXPECT_EQ(
      rejection("", {{"train.beta2=0.99999999999"}}),
      "--set train.beta2: expected a finite number of at least 0 and below 1 in fp32, found '0.99999999999'");
  EXPECT_EQ(rejection("", {{"train.lr=3e38"}, {"train.beta2=0.9999999"}}), "");
  EXPECT_EQ(rejection("", {{"parallel.timeout=1e300"}}), "") << "which is not used as fp32";
}

}  // namespace
}  // namespace tandem
