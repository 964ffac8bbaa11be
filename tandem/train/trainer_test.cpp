#include "tandem/train/trainer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tandem/base/file.h"
#include "tandem/base/system.h"
#include "tandem/base/temporary_directory_test.h"
#include "tandem/checkpoint/manifest.h"
#include "tandem/kernels/cpu/backend.h"
#include "tandem/train/tiny_config_test.h"

namespace tandem {
namespace {

class TrainerTest : public testing::Test {
 protected:
  static Config config(int64_t steps) {
    return tiny_config(fmt::format(
        "train: {{steps: {}, batch: 2, micro_batch: 2, eval_every: 0, schedule: constant, warmup: 0}}\n"
        "checkpoint: {{every: 2}}",
        steps));
  }
  ExitCode train_to(int64_t steps, const std::string& run, const ResumeFrom& resume = {}) const {
    return train(config(steps), backend_, {.run_dir = directory_ / run, .resume = resume});
  }
  nlohmann::json summary(const std::string& run) const {
    return nlohmann::json::parse(read_text(directory_ / run / "summary.json"));
  }

  const Backend backend_ = cpu::make_backend();
  const TemporaryDirectory temporary_;
  const std::filesystem::path directory_ = temporary_.path();
};

TEST_F(TrainerTest, GoesOnWithTheBitsOfARunThatNeverStopped) {
  EXPECT_EQ(train_to(4, "whole"), ExitCode::Done);
  EXPECT_EQ(train_to(2, "parts"), ExitCode::Done);
  EXPECT_EQ(summary("parts")["steps"], 2);
  EXPECT_EQ(train_to(4, "parts"), ExitCode::Done);
  EXPECT_EQ(summary("parts")["steps"], 4);
  EXPECT_EQ(summary("parts")["final_loss"], summary("whole")["final_loss"]);
}

TEST_F(TrainerTest, LeavesARunThatIsDoneAsItIs) {
  EXPECT_EQ(train_to(2, "run"), ExitCode::Done);
  const std::string before = read_text(directory_ / "run/summary.json");
  EXPECT_EQ(train_to(2, "run"), ExitCode::Done);
  EXPECT_EQ(read_text(directory_ / "run/summary.json"), before);
}

TEST_F(TrainerTest, StartsOverBesideAnEarlierRun) {
  EXPECT_EQ(train_to(2, "run"), ExitCode::Done);
  EXPECT_EQ(train_to(2, "run", {ResumeFrom::Kind::None, {}}), ExitCode::Done);
  EXPECT_EQ(summary("run.1")["final_loss"], summary("run")["final_loss"]);
}

TEST_F(TrainerTest, RefusesADirectoryThatIsSomebodys) {
  std::filesystem::create_directory(directory_ / "photos");
  write_atomically(directory_ / "photos/cat.txt", "cat");
  EXPECT_THROW(train_to(2, "photos"), ConfigError);
  EXPECT_EQ(read_text(directory_ / "photos/cat.txt"), "cat");
  EXPECT_FALSE(std::filesystem::exists(directory_ / "photos/config.yaml"));
}

TEST(Trainer, NamesTheDeviceOfItsRankInTheManifestAndTheSummary) {
  const TemporaryDirectory directory;
  const std::filesystem::path run = directory.path() / "run";
  const Config config = tiny_config("train: {steps: 2, batch: 2, micro_batch: 2, eval_every: 0}");
  Backend backend = cpu::make_backend();
  for (const bool named : {true, false}) {
    if (!named) backend.name_device = {};
    if (named) backend.name_device = [](const Communicators*) { return "Abacus (GPU 3, GPU-0a)"; };
    EXPECT_EQ(train(config, backend, {.run_dir = run, .resume = {}}), ExitCode::Done);
    const std::string expected = (named ? "Abacus (GPU 3, GPU-0a), " : "") + hardware_description();
    EXPECT_EQ(read_manifest(run / "checkpoints/latest").hardware, expected);
    EXPECT_EQ(nlohmann::json::parse(read_text(run / "summary.json"))["hardware"], expected);
    std::filesystem::remove_all(run);
  }
}

}  // namespace
}  // namespace tandem
