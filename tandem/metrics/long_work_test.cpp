#include "tandem/metrics/long_work.h"

#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <memory>

namespace tandem {
namespace {

constexpr int64_t kMiB = 1 << 20;

// What is told of work in `steps` parts, into a file that is no terminal.
std::string told(int steps, bool quiet, LongWork::Duration between) {
  const std::unique_ptr<std::FILE, decltype(&std::fclose)> file(std::tmpfile(), &std::fclose);
  {
    LongWork work("reading a", steps * kMiB, quiet, file.get(), between);
    for (int i = 0; i < steps; ++i) work.done(kMiB);
  }
  std::string text(1 << 12, '\0');
  std::rewind(file.get());
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  return text;
}

TEST(LongWork, TellsALineOfALogNowAndThen) {
  const std::string text = told(2, /*quiet=*/false, LongWork::Duration(0));
  EXPECT_TRUE(text.starts_with("reading a: 1.0 MiB of 2.0 MiB, ")) << text;
  EXPECT_NE(std::string::npos, text.find("/s\nreading a: 2.0 MiB of 2.0 MiB, ")) << text;
  EXPECT_EQ('\n', text.back());
}

TEST(LongWork, IsSilentWhileItIsQuickAndOnQuietRanks) {
  EXPECT_EQ("", told(9, /*quiet=*/false, LongWork::kUsual));
  EXPECT_EQ("", told(9, /*quiet=*/true, LongWork::Duration(0)));
}

TEST(LongWork, HasOneLineOfATerminalWhichGoesInTheEnd) {
  int leader = -1, follower = -1;
  ASSERT_EQ(0, ::openpty(&leader, &follower, nullptr, nullptr, nullptr));
  std::FILE* terminal = ::fdopen(follower, "w");
  {
    LongWork work("reading a", 2 * kMiB, false, terminal, LongWork::Duration(0));
    work.done(kMiB);
    work.done(kMiB);
  }
  std::fclose(terminal);
  std::string text;
  char part[256];
  for (ssize_t count = 0; (count = ::read(leader, part, sizeof(part))) > 0;)  // an error once all is read
    text.append(part, static_cast<size_t>(count));
  ::close(leader);
  EXPECT_TRUE(text.starts_with("\rreading a: 1.0 MiB of 2.0 MiB, ")) << text;
  EXPECT_NE(std::string::npos, text.find("\x1b[K\rreading a: 2.0 MiB of 2.0 MiB, ")) << text;
  EXPECT_TRUE(text.ends_with("\r\x1b[K")) << text;
  EXPECT_EQ(std::string::npos, text.find('\n')) << text;
}

}  // namespace
}  // namespace tandem
