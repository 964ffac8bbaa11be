#include "tandem/chaos/fault.h"

#include <gtest/gtest.h>

#include <set>

#include "tandem/base/error.h"

namespace tandem::chaos {
namespace {

TEST(ParseKinds, TakesEachOnce) {
  EXPECT_EQ(parse_kinds("kill"), std::vector{Kind::Kill});
  EXPECT_EQ(parse_kinds("flip,kill,flip"), (std::vector{Kind::Flip, Kind::Kill}));
  for (const char* text : {"", "kil", "kill,", "kill, stop", "disks"})
    EXPECT_THROW(parse_kinds(text), ConfigError) << text;
}

TEST(ChooseFault, FollowsFromSeedAndNumber) {
  const std::vector<Kind> kinds = {Kind::Kill, Kind::Term};
  std::set<double> moments;
  std::set<int> ranks;
  for (int number = 0; number < 200; ++number) {
    const Fault fault = choose_fault(7, number, kinds, 3);
    const Fault again = choose_fault(7, number, kinds, 3);
    EXPECT_EQ(fault.at, again.at);
    EXPECT_EQ(fault.where, again.where);
    EXPECT_EQ(fault.kind, kinds[static_cast<size_t>(number) % 2]) << "kinds take turns";
    EXPECT_GE(fault.at, 0);
    EXPECT_LT(fault.at, 1);
    moments.insert(fault.at);
    ranks.insert(fault.rank);
  }
  EXPECT_EQ(moments.size(), 200u);
  EXPECT_EQ(ranks, (std::set{0, 1, 2}));
  EXPECT_LT(*moments.begin(), 0.05);
  EXPECT_GT(*moments.rbegin(), 0.95);
  EXPECT_NE(choose_fault(8, 0, kinds, 3).at, choose_fault(7, 0, kinds, 3).at);
}

}  // namespace
}  // namespace tandem::chaos
