#include "tandem/base/nearest.h"

#include <gtest/gtest.h>

#include <array>

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

}  // namespace
}  // namespace tandem
