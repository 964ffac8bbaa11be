#include "tandem/metrics/compare_metrics.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tandem/base/error.h"
#include "tandem/base/temporary_directory_test.h"

namespace tandem {
namespace {

std::filesystem::path write_rows(const std::filesystem::path& path, const std::string& rows) {
  std::ofstream(path) << rows;
  return path;
}

TEST(CompareMetrics, LooksAtWhatWasComputedAndNotAtHowFast) {
  const TemporaryDirectory directory;
  const auto a = write_rows(directory.path() / "a", R"({"step":1,"loss":2.5,"step_ms":10.0}
{"step":2,"loss":2.25,"step_ms":11.0}
)");
  const auto b = write_rows(directory.path() / "b", R"({"step":1,"loss":2.5,"step_ms":99.0}
{"step":2,"loss":2.25,"step_ms":98.0}
)");
  const MetricsComparison equal = compare_metrics(a, b);
  EXPECT_EQ(2, equal.common);
  EXPECT_EQ(0, equal.alone);
  EXPECT_TRUE(equal.differences.empty());
}

TEST(CompareMetrics, NamesTheStepAndBothValues) {
  const TemporaryDirectory directory;
  const auto a =
      write_rows(directory.path() / "a", "{\"step\":1,\"loss\":2.5}\n{\"step\":2,\"loss\":2.25}\n");
  const auto b = write_rows(directory.path() / "b", "{\"step\":2,\"loss\":2.125}\n");
  const MetricsComparison result = compare_metrics(a, b);
  EXPECT_EQ(1, result.alone);
  EXPECT_EQ(std::vector<std::string>{"step 2: loss 2.25 and 2.125"}, result.differences);
  EXPECT_EQ(1, result.common);
}

TEST(CompareMetrics, CountsGapsAndStepsThatComeTwice) {
  const TemporaryDirectory directory;
  const auto whole =
      write_rows(directory.path() / "whole", "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n{\"step\":4}\n");
  const auto gap = write_rows(directory.path() / "gap", "{\"step\":2}\n{\"step\":4}\n");
  const auto twice = write_rows(directory.path() / "twice", "{\"step\":1}\n{\"step\":2}\n{\"step\":2}\n");
  for (const auto& [a, b] : {std::pair(whole, gap), std::pair(gap, whole)}) {
    const MetricsComparison result = compare_metrics(a, b);
    EXPECT_EQ(1, result.alone) << "step 1: a run may begin from a checkpoint";
    EXPECT_EQ(std::vector{"step 3: missing in " + gap.string()}, result.differences);
  }
  EXPECT_EQ(std::vector{"step 2: comes twice in " + twice.string()},
            compare_metrics(whole, twice).differences);
}

TEST(CompareMetrics, RefusesWhatIsNoStep) {
  const TemporaryDirectory directory;
  const auto a = write_rows(directory.path() / "a", "{\"step\":1}\n");
  const auto bad = write_rows(directory.path() / "bad", "no step\n");
  EXPECT_THROW(compare_metrics(a, bad), DataError);
  EXPECT_THROW(compare_metrics(a, directory.path() / "missing"), DataError);
}

}  // namespace
}  // namespace tandem
