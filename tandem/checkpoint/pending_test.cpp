#include "tandem/checkpoint/pending.h"

#include <fstream>
#include <memory>

#include "tandem/base/error.h"
#include "tandem/checkpoint/example_state_test.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

class Pending : public CheckpointTest {
 protected:
  void SetUp() override {
    CheckpointTest::SetUp();
    fs::create_directories(folder);
  }
  static void put(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }
  static std::string text_of(const fs::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static SaveGroup rank(int rank, int world_size) { return {rank, world_size, "t", milliseconds(100)}; }
  std::unique_ptr<PendingSave> join(int number, int world_size) const {
    return std::make_unique<PendingSave>(folder, "step-00000001", rank(number, world_size));
  }
};

TEST_F(Pending, ADirectoryThatIsNotCommittedLeavesNothing) {
  {
    const auto pending = join(0, 1);
    put(pending->path() / "a", "half");
    EXPECT_EQ(names(), std::vector<std::string>{".tmp-step-00000001-t"});
  }
  EXPECT_TRUE(names().empty());
}

TEST_F(Pending, CommittingReplacesAnOlderDirectoryOfThatName) {
  for (const char* text : {"first", "second"}) {
    const auto pending = join(0, 1);
    put(pending->path() / "a", text);
    pending->commit("{}");
    EXPECT_EQ(text_of(folder / "step-00000001" / "a"), text);
    if (std::string(text) == "second") {
      EXPECT_EQ(text_of(pending->path() / "a"), "first") << "still needed";
    }
    pending->drop_replaced();
  }
  EXPECT_EQ(names(), std::vector<std::string>{"step-00000001"});
  EXPECT_EQ(text_of(folder / "step-00000001" / "a"), "second");
}

TEST_F(Pending, ARankThatGoesBeforeTheOutcomeLeavesItsPart) {
  {
    const auto first = join(1, 2);
    put(first->path() / "part-00001.json", "{}");
  }
  const auto zero = join(0, 2);
  const auto parts = zero->await_parts([] { return milliseconds(100); });
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(read_text(*zero->draft().open(parts[0])), "{}");
  zero->commit("{}");
  EXPECT_EQ(names(), std::vector<std::string>{"step-00000001"});
  for (const auto& entry : fs::directory_iterator(folder / "step-00000001"))
    EXPECT_EQ(entry.path().filename(), "manifest.json");  // parts are not part of a checkpoint
}

TEST_F(Pending, OthersSeeTheCommitOfTheirOwnDirectoryAndNotOfAnOlderOne) {
  fs::create_directory(folder / "step-00000001");  // saved before
  const auto zero = join(0, 2);
  const auto one = join(1, 2);
  EXPECT_NE(message_of<IoError>([&] { one->await_commit(); }).find("rank 0: has not committed"),
            std::string::npos);
  zero->commit("{}");
  EXPECT_NO_THROW(one->await_commit());
}

TEST_F(Pending, EveryRankHearsOfAFailureAndTheLastOneClearsUp) {
  {
    const auto two = join(2, 4);  // gone before anybody else is there
    two->fail("no luck");
    EXPECT_EQ(message_of<IoError>([&] { two->throw_if_failed(); }), "rank 2: no luck");  // its own fault
  }
  for (const int number : {0, 1}) {
    const auto other = join(number, 4);
    put(other->path() / fmt::format("rank-{:05}.ckpt", number), "data");
    const auto wait = [&] {
      number == 0 ? void(other->await_parts([] { return milliseconds(100); })) : other->await_commit();
    };
    EXPECT_EQ(message_of<CommError>(wait), "rank 2: no luck");
    other->fail("because of rank 2");
  }
  EXPECT_EQ(names(), std::vector<std::string>{".tmp-step-00000001-t"});
  for (const auto& entry : fs::directory_iterator(folder / names()[0])) {
    EXPECT_FALSE(entry.path().filename().string().starts_with("rank-")) << entry.path();
  }
  EXPECT_EQ(message_of<CommError>([&] { join(3, 4)->throw_if_failed(); }), "rank 2: no luck");
  EXPECT_TRUE(names().empty());
}

TEST_F(Pending, NothingOfARankGoesOnceItsPartIsInPlace) {
  const auto zero = join(0, 2);
  const auto one = join(1, 2);
  put(one->path() / "rank-00001.ckpt", "data");
  one->add_part("{}");
  one->fail("something later");
  EXPECT_EQ(zero->await_parts([] { return milliseconds(100); }).size(), 1u);
  EXPECT_EQ(text_of(zero->path() / "rank-00001.ckpt"), "data");
}

TEST_F(Pending, RanksThatSendNothingAreNamed) {
  const auto zero = join(0, 4);
  put(zero->path() / "part-00002.json", "{}");
  put(zero->path() / "part-00003.json.tmp-77", "{}");  // not there yet
  const std::string message =
      message_of<IoError>([&] { zero->await_parts([] { return milliseconds(20); }); });
  EXPECT_TRUE(message.starts_with("ranks 1, 3: no part of the checkpoint came")) << message;
}

TEST_F(Pending, NobodyWaitsOnceARankIsKnownToBeLost) {
  for (const int number : {0, 1}) {
    SaveGroup group{number, 3, "t", std::chrono::minutes(10)};
    group.check_peers = [] { throw CommError("rank 2 is gone"); };
    const PendingSave pending(folder, "step-00000001", group);
    const auto wait = [&] {
      number == 0 ? void(pending.await_parts([] { return std::chrono::minutes(10); }))
                  : pending.await_commit();
    };
    EXPECT_EQ(message_of<CommError>(wait), "rank 2 is gone");
  }
}

TEST_F(Pending, AFileThatGrowsIsProgress) {
  const auto zero = join(0, 2);
  int looks = 0;
  const auto parts = zero->await_parts([&] {
    std::ofstream(zero->path() / "rank-00001.ckpt", std::ios::app) << "more";
    if (++looks == 4) put(zero->path() / "part-00001.json", "{}");
    return milliseconds(0);  // enough, because every look finds the file grown
  });
  EXPECT_EQ(parts.size(), 1u);
}

TEST_F(Pending, IsNoLeftoverWhileAnyRankIsThere) {
  auto zero = join(0, 2);
  auto one = join(1, 2);
  zero.reset();
  StoreRef(folder)->remove_leftovers(any_bundle);
  EXPECT_EQ(names().size(), 1u);
  one.reset();
  EXPECT_EQ(names().size(), 1u);  // neither committed nor failed: rank 0 was killed
  StoreRef(folder)->remove_leftovers(any_bundle);
  EXPECT_TRUE(names().empty());
}

}  // namespace
}  // namespace tandem
