#include "tandem/compile/first_fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace tandem {
namespace {

struct Placed {
  int64_t begin, end;
  Lifetime lifetime;
};

// What FirstFit promises, looked up one by one.
int64_t lowest_offset(const std::vector<Placed>& placed, int64_t bytes, const Lifetime& lifetime) {
  std::vector<Placed> taken;
  for (const Placed& other : placed) {
    if (other.lifetime.meets(lifetime)) taken.push_back(other);
  }
  std::sort(taken.begin(), taken.end(), [](const Placed& a, const Placed& b) { return a.begin < b.begin; });
  int64_t offset = 0;
  for (const Placed& other : taken) {
    if (other.begin - offset >= bytes) break;
    offset = std::max(offset, other.end);
  }
  return offset;
}

TEST(FirstFit, FillsTheLowestGapThatIsWideEnough) {
  FirstFit arena;
  for (int64_t offset : {0, 10, 30}) arena.put(offset, 8, {0, 9});
  EXPECT_EQ(arena.find(2, {5, 5}), 8);
  EXPECT_EQ(arena.find(12, {5, 5}), 18);
  EXPECT_EQ(arena.find(13, {5, 5}), 38);
  EXPECT_EQ(arena.find(13, {10, 11}), 0) << "nothing else lives then";
  EXPECT_EQ(arena.top(), 38);
}

TEST(FirstFit, FindsWhatALookAtEveryBufferFinds) {
  std::mt19937 random(1);
  const auto below = [&](uint32_t limit) { return static_cast<int32_t>(random() % limit); };
  for (const uint32_t longest : {3u, 40u, 2000u}) {  // lives: short, mixed, nearly all at the same time
    FirstFit arena;
    std::vector<Placed> placed;
    int64_t top = 0;
    for (int i = 0; i < 1500; ++i) {
      const int32_t first = below(2000);
      const Lifetime lifetime{first, first + below(longest)};
      const int64_t bytes = below(8) == 0 ? 0 : 64 * below(1u << below(8));
      const int64_t offset = arena.find(bytes, lifetime);
      ASSERT_EQ(offset, lowest_offset(placed, bytes, lifetime))
          << "buffer " << i << ", lives up to " << longest;
      arena.put(offset, bytes, lifetime);
      placed.push_back({offset, offset + bytes, lifetime});
      top = std::max(top, offset + bytes);
    }
    EXPECT_EQ(arena.top(), top);
  }
}

// As the kept activations of a deep model: what forward makes first, backward reads last.
TEST(FirstFit, PassesOverRunsOfBuffersThatLiveInOneAnother) {
  constexpr int32_t kBuffers = 2000;
  FirstFit arena;
  for (int32_t i = 0; i < kBuffers; ++i) {
    const Lifetime lifetime{i, 2 * kBuffers - i};
    ASSERT_EQ(arena.find(64, lifetime), 64 * int64_t{i});
    arena.put(64 * int64_t{i}, 64, lifetime);
  }
  EXPECT_EQ(arena.top(), 64 * int64_t{kBuffers});
}

}  // namespace
}  // namespace tandem
