#include "tandem/doctor/links.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "tandem/comm/connect.h"

namespace tandem::doctor {
namespace {

TEST(RoundOf, EveryPairMeetsOnceAndNobodyTwiceInARound) {
  for (int count = 2; count <= 9; ++count) {
    std::set<std::pair<int, int>> met;
    for (int round = 0; round < num_rounds(count); ++round) {
      std::set<int> busy;
      for (const auto& [low, high] : round_of(count, round)) {
        EXPECT_LT(low, high);
        EXPECT_LT(high, count);
        EXPECT_TRUE(busy.insert(low).second && busy.insert(high).second) << count << " in round " << round;
        EXPECT_TRUE(met.insert({low, high}).second) << low << " and " << high << " of " << count;
      }
    }
    EXPECT_EQ(static_cast<size_t>(count * (count - 1) / 2), met.size());
  }
}

// Ranks as threads of this process.
template <typename Do>
void on_ranks(int count, Do action) {
  MeshShape shape;
  shape.data = count;
  const std::vector<Communicators> all = connect_threads(shape, {});
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < count; ++rank)
    threads.emplace_back([&, rank] { action(*all[static_cast<size_t>(rank)].get(Axis::World)); });
}

TEST(MeasureLinks, AllRanksGetTheTableOfTheChosenOnes) {
  std::vector<LinkTable> tables(5);
  LinkOptions quick;
  quick.most_bytes = int64_t{1} << 21;
  quick.pings = 3;
  on_ranks(5, [&](Communicator& comm) {
    tables[static_cast<size_t>(comm.rank())] = measure_links(comm, {0, 2, 4}, quick);
  });
  for (const LinkTable& table : tables) {
    ASSERT_EQ(3u, table.size());
    for (size_t from = 0; from < 3; ++from) {
      for (size_t to = 0; to < 3; ++to) {
        EXPECT_EQ(from != to, table[from][to].bytes_per_s > 0);
        EXPECT_EQ(from != to, table[from][to].latency_s > 0);
        EXPECT_EQ(tables[0][from][to].bytes_per_s, table[from][to].bytes_per_s);
        EXPECT_LT(std::abs(table[from][to].clock_s), 60);  // one clock
      }
    }
  }
}

TEST(GatherTexts, GivesEachTheTextsOfAll) {
  on_ranks(3, [](Communicator& comm) {
    const std::vector<std::string> all =
        gather_texts(comm, std::string(static_cast<size_t>(comm.rank()) * 7, 'x'));
    ASSERT_EQ(3u, all.size());
    EXPECT_EQ("", all[0]);
    EXPECT_EQ(std::string(14, 'x'), all[2]);
  });
}

}  // namespace
}  // namespace tandem::doctor
