#include "tandem/store/lease.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "tandem/base/file.h"
#include "tandem/base/system.h"
#include "tandem/base/temporary_directory_test.h"

namespace tandem {
namespace {

constexpr LeaseTimes kQuick{.count_s = 0.01, .watch_s = 0.3};

class Leases : public testing::Test {
 protected:
  const TemporaryDirectory directory_;
  const std::filesystem::path file = directory_.path() / "lock";
  std::string holder;
};

TEST_F(Leases, OneHasItUntilItGivesItBack) {
  auto first = Lease::take(file, holder, kQuick);
  ASSERT_TRUE(first);
  EXPECT_FALSE(Lease::take(file, holder, kQuick));
  EXPECT_EQ(holder, "process " + std::to_string(::getpid()) + " on " + hostname());
  first.reset();
  EXPECT_FALSE(is_there(file));
  EXPECT_TRUE(Lease::take(file, holder, kQuick));
}

TEST_F(Leases, OfAProcessOfThisMachineThatHasEndedIsTakenAtOnce) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::string ignored;
    Lease::take(file, ignored, kQuick).release();  // as a kill leaves it
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  ASSERT_TRUE(is_there(file));
  EXPECT_TRUE(Lease::take(file, holder));  // with times in which watching would take 15 s
}

TEST_F(Leases, OfAnotherMachineIsTakenWhenNobodyCountsInIt) {
  std::ofstream(file) << "elsewhere 1 1 00000000000000000007\n";
  EXPECT_TRUE(Lease::take(file, holder, kQuick));
}

// Two machines, or two containers, may have the same name: that the process is not here says nothing.
TEST_F(Leases, OfAnotherMachineOfTheSameNameIsLeftAloneWhileItCounts) {
  const std::string before = hostname() + " 999999999 1 0000000000000000000";
  std::ofstream(file) << before << "7 another-start/pid:[1]\n";
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    std::ofstream(file, std::ios::in) << before << "8 another-start/pid:[1]\n";
  });
  EXPECT_FALSE(Lease::take(file, holder, kQuick));
  EXPECT_EQ(holder, "process 999999999 on " + hostname());
  other.join();
  EXPECT_TRUE(Lease::take(file, holder, kQuick));  // nobody counts any more
}

TEST_F(Leases, OfAnotherMachineThatCountsIsLeftAlone) {
  std::ofstream(file) << "elsewhere 1 1 00000000000000000007\n";
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    std::ofstream(file, std::ios::in) << "elsewhere 1 1 00000000000000000008\n";
  });
  EXPECT_FALSE(Lease::take(file, holder, kQuick));
  EXPECT_EQ(holder, "process 1 on elsewhere");
  other.join();
}

}  // namespace
}  // namespace tandem
