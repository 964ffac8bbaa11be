#include "tandem/train/sinks.h"

#include <gtest/gtest.h>

#include "tandem/base/temporary_directory_test.h"

namespace tandem {
namespace {

TEST(Sinks, AreThoseThatTheConfigNames) {
  for (const bool jsonl : {false, true}) {
    for (const bool csv : {false, true}) {
      const TemporaryDirectory run_dir;
      LogConfig log;
      log.jsonl = jsonl;
      log.csv = csv;
      log.tensorboard = csv;
      for (const auto& sink : make_sinks(log, {.run_dir = run_dir.path()})) EXPECT_EQ(sink->resume(0), "");
      EXPECT_EQ(std::filesystem::exists(run_dir.path() / "metrics.jsonl"), jsonl);
      EXPECT_EQ(std::filesystem::exists(run_dir.path() / "metrics.csv"), csv);
      EXPECT_EQ(std::filesystem::exists(run_dir.path() / "tensorboard"), csv);
    }
  }
}

}  // namespace
}  // namespace tandem
