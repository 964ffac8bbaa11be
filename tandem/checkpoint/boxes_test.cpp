#include "tandem/checkpoint/boxes.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(Boxes, ATensorOfAnyRankIsAMatrix) {
  EXPECT_EQ(whole_box({}), (Box{0, 1, 0, 1}));
  EXPECT_EQ(whole_box({7}), (Box{0, 7, 0, 1}));
  EXPECT_EQ(whole_box({2, 3}), (Box{0, 2, 0, 3}));
  EXPECT_EQ(whole_box({2, 3, 4}), (Box{0, 2, 0, 12}));
  EXPECT_EQ(whole_box({0, 3}).elems(), 0);
}

TEST(Boxes, IntersectionsThatAreEmptyHaveNoElements) {
  EXPECT_EQ(intersect({0, 4, 0, 4}, {2, 6, 1, 3}), (Box{2, 4, 1, 3}));
  EXPECT_EQ(intersect({0, 4, 0, 4}, {4, 6, 0, 4}).elems(), 0);
  EXPECT_EQ(intersect({0, 4, 0, 4}, {6, 8, 6, 8}).elems(), 0);  // apart in both directions
}

TEST(Boxes, ContainsRefusesBoxesTurnedInsideOut) {
  EXPECT_TRUE(contains({0, 4, 0, 4}, {1, 1, 0, 4}));
  EXPECT_FALSE(contains({0, 4, 0, 4}, {3, 2, 0, 4}));
  EXPECT_FALSE(contains({0, 4, 0, 4}, {0, 4, 0, 5}));
  EXPECT_FALSE(contains({0, 4, 0, 4}, {-1, 4, 0, 4}));
}

TEST(Boxes, AnOverlapIsFoundWhateverTheOrder) {
  EXPECT_FALSE(find_overlap({{2, 4, 0, 6}, {0, 2, 3, 6}, {0, 2, 0, 3}, {1, 1, 0, 6}}));
  EXPECT_TRUE(find_overlap({{2, 4, 0, 6}, {0, 3, 5, 6}, {0, 2, 0, 5}}));
  EXPECT_TRUE(find_overlap({{0, 9, 0, 1}, {1, 2, 1, 2}, {8, 9, 0, 1}}));  // not neighbours when sorted
}

}  // namespace
}  // namespace tandem
