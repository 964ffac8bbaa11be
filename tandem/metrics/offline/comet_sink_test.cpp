#include "tandem/metrics/offline/comet_sink.h"

#include <gtest/gtest.h>

#include "tandem/base/file.h"
#include "tandem/base/temporary_directory_test.h"
#include "tandem/metrics/offline/zip_archive.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

fs::path only_archive(const fs::path& run_dir) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(run_dir / "comet")) paths.push_back(entry.path());
  EXPECT_EQ(paths.size(), 1u);
  return paths.front();
}

TEST(CometSink, HasTheConfigAsParametersAndWhatIsNotFiniteInWords) {
  const TemporaryDirectory run_dir;
  CometSink sink({.run_dir = run_dir.path(), .config_json = R"({"train":{"lr":0.5,"optimizer":"adamw"}})"});
  EXPECT_EQ(sink.resume(0), "");
  StepRecord record;
  record.step = 1;
  record.loss = -std::numeric_limits<float>::infinity();
  record.time = "2026-01-01T00:00:00.000Z";
  sink.write(record);
  const std::string bytes = read_text(only_archive(run_dir.path()));
  for (const char* expected : {R"("paramName":"train.lr","paramValue":"0.5")", R"("paramValue":"adamw")",
                               R"("metricName":"loss","metricValue":"-Infinity","step":1)"})
    EXPECT_NE(bytes.find(expected), std::string::npos) << expected;
  EXPECT_TRUE(bytes.starts_with(zip::growing_head("messages.json")));
}

// A write that was cut off takes the archive's directory with it, but no row.
TEST(CometSink, GoesOnWithAnArchiveWithoutItsDirectory) {
  const TemporaryDirectory run_dir;
  StepRecord record;
  record.time = "2026-01-01T00:00:00.000Z";
  {
    CometSink sink({.run_dir = run_dir.path()});
    sink.resume(0);
    for (record.step = 1; record.step <= 3; ++record.step) sink.write(record);
  }
  const fs::path path = only_archive(run_dir.path());
  const std::string bytes = read_text(path);
  const size_t directory = bytes.find("PK\x07\x08");
  fs::resize_file(path, directory + 10);
  CometSink sink({.run_dir = run_dir.path()});
  EXPECT_EQ(sink.resume(3), "");
  record.step = 4;
  sink.write(record);
  const std::string after = read_text(path);
  EXPECT_NE(after.find(R"("metricName":"loss","metricValue":0,"step":3)"), std::string::npos);
  EXPECT_TRUE(after.find("PK\x06\x06") != std::string::npos);
}

}  // namespace
}  // namespace tandem
