#include "tandem/chaos/process.h"

#include <gtest/gtest.h>

#include <csignal>
#include <thread>

#include "tandem/base/file.h"
#include "tandem/base/temporary_directory_test.h"

namespace tandem::chaos {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(Process, TellsHowItEnded) {
  const TemporaryDirectory directory;
  const std::filesystem::path log = directory.path() / "log";
  EXPECT_EQ(Process({"sh", "-c", "echo out; echo err >&2; exit 3"}, log).wait(seconds(60)), 3);
  EXPECT_EQ(read_text(log), "out\nerr\n");
  Process killed({"sleep", "1000"}, log);
  EXPECT_FALSE(killed.wait(milliseconds(10)));
  killed.signal(SIGTERM);
  EXPECT_EQ(killed.wait(seconds(60)), 128 + SIGTERM);
  EXPECT_EQ(Process({"/no/such/program"}, log).wait(seconds(60)), 127);
}

TEST(Process, KnowsTheRanksAmongItsChildren) {
  const TemporaryDirectory directory;
  Process parent({"sh", "-c", "RANK=1 sleep 1000 & RANK=0 LOCAL_RANK=7 sleep 1000 & sleep 1000 & wait"},
                 directory.path() / "log");
  std::map<int, pid_t> ranks;
  for (int i = 0; i < 6000 && ranks.size() < 2; ++i) {
    ranks = parent.ranks();
    std::this_thread::sleep_for(milliseconds(10));
  }
  ASSERT_EQ(ranks.size(), 2u);
  EXPECT_TRUE(ranks.contains(0) && ranks.contains(1));
  parent.kill_all();
  EXPECT_EQ(parent.wait(seconds(0)), 128 + SIGKILL);
}

}  // namespace
}  // namespace tandem::chaos
