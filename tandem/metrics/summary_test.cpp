#include "tandem/metrics/summary.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "tandem/base/file.h"
#include "tandem/base/temporary_directory_test.h"

namespace tandem {
namespace {

Summary example() {
  Summary summary;
  summary.steps = 300;
  summary.final_loss = 0.71f;
  summary.eval_loss = 0.7f;
  summary.loss_floor = 0.68;
  summary.steps_this_start = summary.steps;
  summary.per_s = 12345;
  summary.peak_rss_bytes = 200 << 20;
  summary.planned_bytes = {{"parameters", 100 << 20}, {"activations", 50 << 20}};
  summary.wall_s = 100;
  summary.first_step_s = 0.25;
  summary.strategy = "single";
  summary.precision = "fp32";
  return summary;
}

TEST(Summary, HasTheKeysOfTheInterface) {
  const TemporaryDirectory run_dir;
  write_summary(run_dir.path(), example());
  const auto object = nlohmann::json::parse(read_text(run_dir.path() / "summary.json"));
  for (const char* key : {"steps", "final_loss", "eval_loss", "loss_floor", "tokens_per_s", "peak_rss_bytes",
                          "peak_device_bytes", "planned_bytes", "wall_s", "first_step_s", "world_size",
                          "strategy", "precision", "hostname", "hardware"}) {
    EXPECT_TRUE(object.contains(key)) << key;
  }
  EXPECT_EQ(object["final_loss"], 0.71);
  EXPECT_EQ(object["planned_bytes"]["activations"], 50 << 20);
  EXPECT_FALSE(object["hostname"].get<std::string>().empty());
}

TEST(Summary, LeavesOutWhatTheRunDoesNotHave) {
  const TemporaryDirectory run_dir;
  Summary summary;
  summary.final_loss = std::numeric_limits<float>::quiet_NaN();
  write_summary(run_dir.path(), summary);
  const auto object = nlohmann::json::parse(read_text(run_dir.path() / "summary.json"));
  EXPECT_TRUE(object["final_loss"].is_null());
  EXPECT_FALSE(object.contains("eval_loss"));
  EXPECT_FALSE(object.contains("loss_floor"));
  EXPECT_FALSE(object.contains("library_bytes"));
}

TEST(Summary, OfAGpuTellsWhatItsLibrariesTook) {
  const TemporaryDirectory run_dir;
  Summary summary = example();
  EXPECT_EQ(summary_table(summary, run_dir.path()).find("device memory"), std::string::npos);
  summary.peak_device_bytes = 700 << 20;
  summary.library_bytes = 550 << 20;
  write_summary(run_dir.path(), summary);
  const auto object = nlohmann::json::parse(read_text(run_dir.path() / "summary.json"));
  EXPECT_EQ(object["peak_device_bytes"], 700 << 20);
  EXPECT_EQ(object["library_bytes"], 550 << 20);
  EXPECT_NE(summary_table(summary, run_dir.path())
                .find("device memory  700.0 MiB at most, 550.0 MiB of it for driver and libraries"),
            std::string::npos);
}

TEST(Summary, TableComparesTheLossWithItsFloor) {
  const std::string table = summary_table(example(), "runs/quickstart");
  for (const char* part : {"300 in 1m 40s (first after 0.25 s)", "0.7000 (floor 0.6800, +2.9%)",
                           "12.3k tokens/s", "150.0 MiB planned, 200.0 MiB resident", "runs/quickstart"}) {
    EXPECT_NE(table.find(part), std::string::npos) << "no '" << part << "' in\n" << table;
  }
}

}  // namespace
}  // namespace tandem
