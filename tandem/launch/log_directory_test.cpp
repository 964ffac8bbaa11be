#include "tandem/launch/log_directory.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <optional>
#include <set>

#include "tandem/base/temporary_directory_test.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

class LogDirectoryTest : public testing::Test {
 protected:
  LogDirectoryTest() {
    if (const char* outer = std::getenv("TMPDIR")) outer_ = outer;
    ::setenv("TMPDIR", scratch_.path().c_str(), 1);
  }
  ~LogDirectoryTest() override { outer_ ? ::setenv("TMPDIR", outer_->c_str(), 1) : ::unsetenv("TMPDIR"); }

  // The directory of a launcher that was killed.
  fs::path left_behind(bool kept) {
    const pid_t child = ::fork();
    if (child == 0) {
      auto* logs = new LogDirectory("");
      std::ofstream(logs->log_of(0)) << "text";
      if (kept) logs->keep();
      ::_exit(0);
    }
    ::waitpid(child, nullptr, 0);
    for (const auto& entry : fs::directory_iterator(scratch_.path())) {
      if (known_.insert(entry.path()).second) return entry.path();
    }
    return {};
  }

  TemporaryDirectory scratch_;
  std::optional<std::string> outer_;
  std::set<fs::path> known_;
};

TEST_F(LogDirectoryTest, IsGoneAtTheEndUnlessItIsKept) {
  fs::path gone, stays;
  {
    LogDirectory a(""), b("");
    gone = a.path();
    stays = b.path();
    b.keep();
    EXPECT_TRUE(gone.filename().string().starts_with("tandem-launch-"));
  }
  EXPECT_FALSE(fs::exists(gone));
  EXPECT_TRUE(fs::exists(stays));
}

TEST_F(LogDirectoryTest, OfAKilledLauncherGoesWithTheNextLaunch) {
  const fs::path left = left_behind(false);
  ASSERT_TRUE(fs::exists(left / "rank-0.log"));
  LogDirectory next("");
  EXPECT_FALSE(fs::exists(left));
}

TEST_F(LogDirectoryTest, OfALiveLauncherStays) {
  LogDirectory living(""), next("");
  EXPECT_TRUE(fs::exists(living.path()));
}

TEST_F(LogDirectoryTest, ThatWasKeptStaysForAWeek) {
  const fs::path kept = left_behind(true);
  { LogDirectory next(""); }
  EXPECT_TRUE(fs::exists(kept / "rank-0.log"));
  fs::last_write_time(kept / ".kept",
                      fs::file_time_type::clock::now() - LogDirectory::kKeptFor - std::chrono::hours(1));
  { LogDirectory next(""); }
  EXPECT_FALSE(fs::exists(kept));
}

TEST_F(LogDirectoryTest, WhatIsNotALaunchersStays) {
  const fs::path named_alike = scratch_.path() / "tandem-launch-mine";
  fs::create_directory(named_alike);
  std::ofstream(named_alike / "thesis.txt") << "text";
  const fs::path open_to_others = left_behind(false);
  fs::permissions(open_to_others, fs::perms::all);
  const fs::path elsewhere = scratch_.path() / "elsewhere";
  fs::create_directory(elsewhere);
  std::ofstream(elsewhere / ".launcher").close();
  fs::create_directory_symlink(elsewhere, scratch_.path() / "tandem-launch-link");
  { LogDirectory next(""); }
  EXPECT_TRUE(fs::exists(named_alike / "thesis.txt"));
  EXPECT_TRUE(fs::exists(open_to_others));
  EXPECT_TRUE(fs::exists(elsewhere / ".launcher"));
}

}  // namespace
}  // namespace tandem
