#include "tandem/base/nearest.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace tandem {
namespace {

TEST(EditDistance, CountsEachKindOfSlipOnce) {
  EXPECT_EQ(edit_distance("batch", "batch"), 0);
  EXPECT_EQ(edit_distance("batch", "bacth"), 1);
  EXPECT_EQ(edit_distance("batch", "match"), 1);
  EXPECT_EQ(edit_distance("batch", "batches"), 2);
  EXPECT_EQ(edit_distance("batch", "bath"), 1);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
}

TEST(Nearest, PicksTheClosestAndTheEarliestOfEquals) {
  constexpr std::array<std::string_view, 3> kNames = {"cosine", "linear", "constant"};
  EXPECT_EQ(nearest("cosin", kNames), "cosine");
  EXPECT_EQ(nearest("linaer", kNames), "linear");
  EXPECT_EQ(nearest("const", kNames), "constant");
  constexpr std::array<std::string_view, 2> kEqual = {"ab", "ac"};
  EXPECT_EQ(nearest("ad", kEqual), "ab");
}

TEST(Nearest, TakesNoNoticeOfCaseAndDashes) {
  constexpr std::array<std::string_view, 4> kNames = {"fp32", "bf16", "fp16", "fp8"};
  EXPECT_EQ(nearest("FP16", kNames), "fp16");
  EXPECT_EQ(nearest("BF16", kNames), "bf16");
  constexpr std::array<std::string_view, 2> kFlags = {"--run-id", "--run-dir"};
  EXPECT_EQ(nearest("--Run_Dir", kFlags), "--run-dir");
}

TEST(Nearest, TakesTheBeginningOfANameForIt) {
  constexpr std::array<std::string_view, 3> kFlags = {"--device", "--help", "--resume-from-checkpoint"};
  EXPECT_EQ(nearest("--resume", kFlags), "--resume-from-checkpoint");
}

TEST(Likely, IsNothingWhereNothingIsClose) {
  constexpr std::array<std::string_view, 3> kFlags = {"--device", "--help", "--set"};
  EXPECT_EQ(likely("--lr", kFlags), std::nullopt);
  EXPECT_EQ(likely("--devcie", kFlags), "--device");
  EXPECT_EQ(likely(std::string(1 << 20, 'x'), kFlags), std::nullopt);
}

}  // namespace
}  // namespace tandem
