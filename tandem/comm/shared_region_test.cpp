#include "tandem/comm/shared_region.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "tandem/base/error.h"
#include "tandem/base/file.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kBytes = 8192;

std::string refusal(const std::string& ticket) {
  try {
    SharedRegion::open(ticket, kBytes);
  } catch (const CommError& error) {
    return error.what();
  }
  return "nothing refused";
}

std::string ticket_of(int fd) { return fmt::format("{} {}", getpid(), fd); }

TEST(SharedRegion, IsTheSameMemoryForWhoOpensItsTicket) {
  const auto region = SharedRegion::create(kBytes);
  const auto opened = SharedRegion::open(region->ticket(), kBytes);
  region->data()[kBytes - 1] = std::byte{7};
  EXPECT_EQ(opened->data()[kBytes - 1], std::byte{7});
}

TEST(SharedRegion, IsNotOpenedWithAnotherSize) {
  const auto region = SharedRegion::create(2 * kBytes);
  EXPECT_NE(refusal(region->ticket()).find("is not the sealed memory of 8192 bytes"), std::string::npos);
}

// In /dev/shm, too, which is the same kind of file system as anonymous memory.
TEST(SharedRegion, IsNeverAFileOfTheUsers) {
  for (const fs::path& folder : {fs::temp_directory_path(), fs::path("/dev/shm")}) {
    std::string name = (folder / "tandem-victim-XXXXXX").string();
    const int fd = mkstemp(name.data());
    ASSERT_GE(fd, 0);
    const std::string content(kBytes, 'v');
    ASSERT_EQ(write(fd, content.data(), content.size()), kBytes);
    const fs::file_time_type changed = fs::last_write_time(name);
    EXPECT_NE(refusal(name).find("expected a process and a descriptor"), std::string::npos) << refusal(name);
    EXPECT_NE(refusal(ticket_of(fd)).find("is not the sealed memory"), std::string::npos);
    EXPECT_EQ(read_text(name), content);
    EXPECT_EQ(fs::last_write_time(name), changed);
    fs::remove(name);
    EXPECT_NE(refusal(ticket_of(fd)).find("is not the sealed memory"), std::string::npos);  // without a name
    close(fd);
  }
}

TEST(SharedRegion, IsNotMemoryThatCanShrinkUnderARank) {
  const int fd = memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(fd, kBytes), 0);
  EXPECT_NE(refusal(ticket_of(fd)).find("is not the sealed memory"), std::string::npos);
  close(fd);
}

TEST(SharedRegion, IsNotMemoryOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to be two users";
  const auto region = SharedRegion::create(kBytes);
  const int fd =
      ::open(fmt::format("/proc/self/fd/{}", region->ticket().substr(region->ticket().find(' ') + 1)).c_str(),
             O_RDWR | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(fchown(fd, 65534, 65534), 0);
  EXPECT_NE(refusal(region->ticket()).find("is not the sealed memory"), std::string::npos);
  close(fd);
}

TEST(SharedRegion, IsNotOpenedByWhatIsNoTicket) {
  for (const char* text : {"", "1", "1 ", " 1", "1 x", "-1 3", "1 -3", "/etc/passwd", "self 3", "1 3 4",
                           "99999999999999999999 1", "1/../2 3"}) {
    EXPECT_NE(refusal(text).find("expected a process and a descriptor"), std::string::npos) << text;
  }
  EXPECT_NE(refusal("999999999 3").find("cannot open /proc/999999999/fd/3"), std::string::npos);
}

}  // namespace
}  // namespace tandem
