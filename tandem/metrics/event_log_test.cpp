#include "tandem/metrics/event_log.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tandem/base/file.h"
#include "tandem/base/temporary_directory_test.h"

namespace tandem {
namespace {

std::vector<nlohmann::json> events_of(const std::filesystem::path& run_dir) {
  std::ifstream file(run_dir / "events.jsonl");
  std::vector<nlohmann::json> events;
  for (std::string line; std::getline(file, line);) events.push_back(nlohmann::json::parse(line));
  return events;
}

TEST(EventLog, KeepsEveryAttemptAndDropsAHalfWrittenLine) {
  const TemporaryDirectory run_dir;
  EventLog(run_dir.path()).write("start", "training \"quickstart\"\nfrom scratch", {{"pid", 7}});
  std::ofstream(run_dir.path() / "events.jsonl", std::ios::app) << "{\"time\":\"20";
  EventLog(run_dir.path()).write(EvalRecord{50, 0.1f, 0.875f});
  const auto events = events_of(run_dir.path());
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0]["type"], "start");
  EXPECT_EQ(events[0]["message"], "training \"quickstart\"\nfrom scratch");
  EXPECT_EQ(events[0]["pid"], 7);
  EXPECT_TRUE(events[0].contains("time"));
  EXPECT_EQ(events[1]["type"], "eval");
  EXPECT_EQ(events[1]["step"], 50);
  EXPECT_EQ(events[1]["eval_accuracy"], 0.875);
  EXPECT_NE(read_text(run_dir.path() / "events.jsonl").find("\"eval_loss\":0.1"), std::string::npos);
}

}  // namespace
}  // namespace tandem
