#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <limits>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/message_of_test.h"
#include "tandem/base/temporary_directory_test.h"
#include "tandem/metrics/online/fake_wandb_test.h"
#include "tandem/metrics/online/wandb_online_sink.h"

namespace tandem::wandb {
namespace {

using std::chrono::milliseconds;

constexpr Patience kQuick{.interval = milliseconds(5),
                          .heartbeat = milliseconds(20),
                          .retry = milliseconds(5),
                          .most_retry = milliseconds(20),
                          .at_end = std::chrono::minutes(2),
                          .at_stop = std::chrono::minutes(2),
                          .at_end_failing = std::chrono::minutes(2)};

// Of a run that ends beside a server that does not take its rows.
constexpr Patience kHasty = [] {
  Patience hasty = kQuick;
  hasty.at_end_failing = hasty.at_stop = hasty.at_end = milliseconds(20);
  return hasty;
}();

class OnlineRun : public testing::Test {
 protected:
  std::unique_ptr<WandbOnlineSink> open(Patience patience = kQuick) {
    return std::make_unique<WandbOnlineSink>(
        SinkOptions{.run_dir = run_dir.path(),
                    .config_json = R"({"train":{"steps":9}})",
                    .tell = [this](const std::string& sentence) { told.push_back(sentence); }},
        patience);
  }
  static StepRecord row(int64_t step) {
    StepRecord record;
    record.step = step;
    record.loss = 1.0f / static_cast<float>(step);
    record.time = "2026-01-01T00:00:00.000Z";
    return record;
  }
  std::string id() const {
    for (const auto& entry : std::filesystem::directory_iterator(run_dir.path() / "wandb"))
      return entry.path().filename().string().substr(entry.path().filename().string().rfind('-') + 1);
    return "";
  }

  FakeWandb server;
  TemporaryDirectory run_dir;
  std::vector<std::string> told;
};

TEST_F(OnlineRun, HasEveryRowTheConfigASummaryAndAnEnd) {
  const auto sink = open();
  sink->resume(0);
  for (int64_t step = 1; step <= 9; ++step) sink->write(row(step));
  sink->finish();
  const FakeWandb::Run run = server.run(id());
  EXPECT_TRUE(run.complete);
  ASSERT_EQ(run.history.size(), 9u);
  const auto last = nlohmann::json::parse(run.history.at(8));
  EXPECT_EQ(last["_step"], 9);
  EXPECT_EQ(last["loss"].get<float>(), 1.0f / 9);
  EXPECT_EQ(nlohmann::json::parse(run.summary), last);
  const auto config = nlohmann::json::parse(run.config);
  EXPECT_EQ(config["train"]["value"]["steps"], 9);
  EXPECT_TRUE(config["_wandb"]["value"]["t"].is_object());  // W&B's own client resumes no run without
  EXPECT_TRUE(told.empty());
}

// Whatever is asked for, the rows are in the file, which one of them is larger than.
TEST_F(OnlineRun, SmallRequestsMakeTheSame) {
  Patience patience = kQuick;
  patience.request_bytes = 100;
  const auto sink = open(patience);
  sink->resume(0);
  StepRecord infinite = row(1);
  infinite.grad_norm = std::numeric_limits<float>::infinity();
  sink->write(infinite);
  for (int64_t step = 2; step <= 50; ++step) sink->write(row(step));
  sink->finish();
  const FakeWandb::Run run = server.run(id());
  ASSERT_EQ(run.history.size(), 50u);
  EXPECT_NE(run.history.at(0).find("\"grad_norm\":Infinity"), std::string::npos);
}

TEST_F(OnlineRun, AServerThatFailsIsToldOnceAndCatchesUp) {
  server.fail(7, 503);
  const auto sink = open();
  sink->resume(0);
  int64_t step = 0;
  // It is told between rows.
  for (int i = 0; i < 24000 && told.size() < 2; ++i, std::this_thread::sleep_for(milliseconds(5)))
    sink->write(row(++step));
  sink->finish();
  ASSERT_EQ(told.size(), 2u);
  EXPECT_NE(told[0].find("it answers with status 503; training goes on"), std::string::npos) << told[0];
  EXPECT_NE(told[1].find("is told again"), std::string::npos);
  EXPECT_EQ(std::ssize(server.run(id()).history), step);
}

TEST_F(OnlineRun, WhatDidNotReachTheServerIsSentByTheNextStart) {
  server.fail(1000000, 500);
  {
    const auto sink = open(kHasty);
    sink->resume(0);
    for (int64_t step = 1; step <= 5; ++step) sink->write(row(step));
    sink->finish();
    ASSERT_FALSE(told.empty());
    EXPECT_NE(told.back().find("wandb sync "), std::string::npos) << told.back();
  }
  server.fail(0, 200);
  const auto sink = open();
  sink->resume(5);
  sink->write(row(6));
  sink->finish();
  EXPECT_EQ(server.run(id()).history.size(), 6u);
}

// Steps that were taken again with another config while the server was away, and then a kill.
TEST_F(OnlineRun, RowsThatTheServerHasFromBeforeTheyWereTakenAgainAreSent) {
  {
    const auto sink = open();
    sink->resume(0);
    for (int64_t step = 1; step <= 10; ++step) sink->write(row(step));
    sink->finish();
  }
  ASSERT_EQ(server.run(id()).history.size(), 10u);
  const auto other = [](int64_t step) {
    StepRecord record = row(step);
    record.loss = 100;
    return record;
  };
  server.fail(1000000, 500);
  {
    const auto sink = open(kHasty);
    sink->resume(6);
    for (int64_t step = 7; step <= 9; ++step) sink->write(other(step));
    sink->sync();
  }
  server.fail(0, 200);
  const auto sink = open();
  sink->resume(9);
  sink->write(other(10));
  sink->finish();
  const FakeWandb::Run run = server.run(id());
  ASSERT_EQ(run.history.size(), 10u);
  for (int64_t line = 0; line < 10; ++line) {
    const auto found = nlohmann::json::parse(run.history.at(line));
    EXPECT_EQ(found["_step"], line + 1);
    EXPECT_EQ(found["loss"].get<float>(), line < 6 ? 1.0f / static_cast<float>(line + 1) : 100);
  }
}

// The clock decides nothing here: without a bound the test would never end.
TEST_F(OnlineRun, AServerThatNeverAnswersKeepsTheRunFromNothing) {
  server.fail(1000000, 0);
  const auto sink = open(kHasty);
  sink->resume(0);
  for (int64_t step = 1; step <= 1000; ++step) sink->write(row(step));
  sink->sync();
  sink->finish();
  EXPECT_TRUE(server.run(id()).history.empty());
}

TEST_F(OnlineRun, AKeyThatIsRefusedIsNamedButNotShown) {
  server.fail(1000000, 401);
  const auto sink = open(kHasty);
  sink->resume(0);
  // It is told between rows; how long a request takes is the machine's business.
  for (int64_t step = 1; step <= 24000 && told.empty(); ++step) {
    sink->write(row(step));
    std::this_thread::sleep_for(milliseconds(5));
  }
  sink->finish();
  ASSERT_FALSE(told.empty());
  EXPECT_NE(told[0].find("does not accept the key of WANDB_API_KEY"), std::string::npos) << told[0];
  for (const std::string& sentence : told)
    EXPECT_EQ(sentence.find("a-key-of-the-tests"), std::string::npos) << sentence;
}

TEST_F(OnlineRun, TheKeyIsInTheHeadersAndInNoFile) {
  const auto sink = open();
  sink->resume(0);
  sink->write(row(1));
  sink->finish();
  // "api:a-key-of-the-tests"
  for (const std::string& head : server.heads())
    EXPECT_NE(head.find("Authorization: Basic YXBpOmEta2V5LW9mLXRoZS10ZXN0cw=="), std::string::npos) << head;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(run_dir.path())) {
    if (!entry.is_regular_file()) continue;
    EXPECT_EQ(read_text(entry.path()).find("a-key-of-the-tests"), std::string::npos) << entry.path();
  }
}

TEST_F(OnlineRun, ARunThatWasOfflineGoesOnOnline) {
  {
    WandbSink offline({.run_dir = run_dir.path()});
    offline.resume(0);
    for (int64_t step = 1; step <= 3; ++step) offline.write(row(step));
    offline.sync();
  }
  const auto sink = open();
  EXPECT_EQ(sink->resume(3), "");
  sink->write(row(4));
  sink->finish();
  EXPECT_EQ(server.run(id()).history.size(), 4u);
}

TEST(OnlineAccess, IsTheEnvironments) {
  ::unsetenv("WANDB_API_KEY");
  EXPECT_NE(
      message_of<ConfigError>([] { access_of_environment(); }).find("WANDB_API_KEY; set it, or use offline"),
      std::string::npos);
  ::setenv("WANDB_API_KEY", "two words", 1);
  const std::string message = message_of<ConfigError>([] { access_of_environment(); });
  EXPECT_NE(message.find("WANDB_API_KEY: has characters"), std::string::npos);
  EXPECT_EQ(message.find("two words"), std::string::npos);
  ::setenv("WANDB_API_KEY", "key", 1);
  ::setenv("WANDB_BASE_URL", "ftp://x", 1);
  EXPECT_NE(message_of<ConfigError>([] { access_of_environment(); }).find("WANDB_BASE_URL"),
            std::string::npos);
  ::setenv("WANDB_BASE_URL", "https://wandb.example.org/base//", 1);
  EXPECT_EQ(access_of_environment().url, "https://wandb.example.org/base");
  ::unsetenv("WANDB_BASE_URL");
  EXPECT_EQ(access_of_environment().url, "https://api.wandb.ai");
}

}  // namespace
}  // namespace tandem::wandb
