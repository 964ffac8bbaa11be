#include "tandem/base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/base/temporary_directory_test.h"

namespace tandem {
namespace {

class FileTest : public testing::Test {
 protected:
  const TemporaryDirectory temporary_;
  const std::filesystem::path& folder_ = temporary_.path();
};

TEST_F(FileTest, WhatIsWrittenAtomicallyReadsBackAndLeavesNothingBeside) {
  write_atomically(folder_ / "a", "one");
  write_atomically(folder_ / "a", "two");
  EXPECT_EQ(read_text(folder_ / "a"), "two");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(FileTest, AFailedWriteNamesTheFileAndLeavesTheOldOne) {
  std::filesystem::create_directory(folder_ / "target");  // a directory cannot be replaced by a file
  write_atomically(folder_ / "target" / "old", "kept");
  try {
    write_atomically(folder_ / "target", "text");
    FAIL();
  } catch (const IoError& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with((folder_ / "target").string())) << error.what();
  }
  EXPECT_EQ(read_text(folder_ / "target" / "old"), "kept");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(FileTest, AMissingFileIsAnIoErrorThatNamesIt) {
  EXPECT_THROW(read_text(folder_ / "missing"), IoError);
  EXPECT_THROW(MappedFile(folder_ / "missing"), IoError);
  EXPECT_THROW(regular_file_bytes(folder_ / "missing"), IoError);
  EXPECT_NO_THROW(require_regular(folder_ / "missing"));
}

// A FIFO that nobody writes to: whoever opens it as a file waits for ever.
TEST_F(FileTest, OnlyRegularFilesAreOpened) {
  const auto fifo = folder_ / "fifo", link = folder_ / "link";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  std::filesystem::create_symlink(fifo, link);
  for (const std::filesystem::path& path : {fifo, link, folder_, std::filesystem::path("/dev/zero")}) {
    EXPECT_THROW(read_text(path), DataError) << path;
    EXPECT_THROW(MappedFile{path}, DataError) << path;
    EXPECT_THROW(regular_file_bytes(path), DataError) << path;
    EXPECT_THROW(require_regular(path), DataError) << path;
    EXPECT_THROW(open_regular(path, O_WRONLY | O_CREAT | O_APPEND), DataError) << path;
  }
  try {
    read_text(fifo);
  } catch (const DataError& error) {
    EXPECT_EQ(error.what(), fifo.string() + ": expected a regular file, found a FIFO");
  }
}

// The kernel gives them no size.
TEST_F(FileTest, FilesOfTheKernelAreReadToTheirEnd) {
  EXPECT_EQ(read_text("/proc/sys/kernel/random/boot_id").size(), 37u);
}

TEST_F(FileTest, TextThatIsTooLongIsNotRead) {
  write_atomically(folder_ / "a", "12345");
  EXPECT_EQ(read_text(folder_ / "a", 5), "12345");
  EXPECT_THROW(read_text(folder_ / "a", 4), DataError);
}

TEST_F(FileTest, DirectoriesAreMadeWithWhatIsMissingAboveThem) {
  make_directories(folder_ / "a" / "b" / "c");
  make_directories(folder_ / "a" / "b" / "d" / "");
  make_directories(folder_ / "a" / "b");
  EXPECT_TRUE(std::filesystem::is_directory(folder_ / "a/b/c"));
  EXPECT_TRUE(std::filesystem::is_directory(folder_ / "a/b/d"));
  write_atomically(folder_ / "file", "");
  EXPECT_THROW(make_directories(folder_ / "file"), IoError);
  EXPECT_THROW(make_directories(folder_ / "file" / "a"), IoError);
}

TEST_F(FileTest, WhatDeadWritersLeftGoesAndWhatLivingOnesWriteStays) {
  for (const char* name : {"a.tmp-7", "b.tmp-8", "a.tmp-x", "a.tmp-", "c.tmp-9", "a"})
    write_atomically(folder_ / name, "");
  const OutputFile living(folder_ / "b.tmp-8");
  ASSERT_EQ(::flock(living.descriptor(), LOCK_EX | LOCK_NB), 0);  // as write_atomically holds it
  EXPECT_TRUE(remove_dead_temporaries(folder_, {"a", "b"}).empty());
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder_))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"a", "a.tmp-", "a.tmp-x", "b.tmp-8", "c.tmp-9"}));
}

TEST_F(FileTest, AWriteBeyondTheLimitOfFileSizesIsAnError) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const rlimit limit{10, 10};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    survive_file_size_limit();
    try {
      write_atomically(folder_ / "a", "more than ten bytes");
    } catch (const IoError&) {
      ::_exit(0);
    }
    ::_exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(FileTest, AMappingShowsTheFilesBytes) {
  write_atomically(folder_ / "a", "hello");
  MappedFile mapped(folder_ / "a");
  ASSERT_EQ(mapped.bytes().size(), 5u);
  EXPECT_EQ(static_cast<char>(mapped.bytes()[1]), 'e');
  MappedFile moved = std::move(mapped);
  EXPECT_EQ(moved.bytes().size(), 5u);
  write_atomically(folder_ / "empty", "");
  EXPECT_TRUE(MappedFile(folder_ / "empty").bytes().empty());
}

}  // namespace
}  // namespace tandem
