#include "tandem/comm/kept_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "tandem/base/error.h"

namespace tandem {
namespace {

TEST(KeptMemory, OutlivesTheProcessThatFilledIt) {
  const KeptMemory kept(2);
  const pid_t rank = ::fork();
  ASSERT_GE(rank, 0);
  if (rank == 0) {
    std::vector<KeptFile> files = KeptFile::open_all(kept.ticket());
    std::ranges::fill(files[3].map(10000), std::byte{7});
    ::_exit(files.size() == 4 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(rank, ::waitpid(rank, &status, 0));
  ASSERT_EQ(0, status);
  std::vector<KeptFile> files = KeptFile::open_all(kept.ticket());
  EXPECT_TRUE(files[0].map().empty());
  const std::span<std::byte> found = files[3].map();
  ASSERT_EQ(10000U, found.size());
  EXPECT_EQ(10000, std::ranges::count(found, std::byte{7}));
}

TEST(KeptMemory, IsAsLongAsItsRankMakesIt) {
  const KeptMemory kept(1);
  std::vector<KeptFile> files = KeptFile::open_all(kept.ticket());
  EXPECT_EQ(5000U, files[0].map(5000).size());
  EXPECT_EQ(100U, files[0].map(100).size());
  EXPECT_EQ(100U, files[0].map().size());
  EXPECT_TRUE(files[0].map(0).empty());
}

TEST(KeptMemory, OpensNothingElse) {
  const auto path = std::filesystem::temp_directory_path() / "tandem-kept-test";
  const Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  std::filesystem::remove(path);
  for (const std::string& ticket :
       {std::string(), std::string("x"), std::to_string(::getpid()),
        fmt::format("{} {} {}", ::getpid(), file.get(), file.get()), fmt::format("{} 0 1", ::getpid()),
        fmt::format("{} 100000 100001", ::getpid())})
    EXPECT_THROW(KeptFile::open_all(ticket), CommError) << ticket;
  const KeptMemory kept(1);
  EXPECT_THROW(KeptFile::open_all(kept.ticket() + " x"), CommError);
  EXPECT_THROW(KeptFile::open_all(kept.ticket().substr(0, kept.ticket().rfind(' '))), CommError);
}

}  // namespace
}  // namespace tandem
