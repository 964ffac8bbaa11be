#include "tandem/base/file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "tandem/base/error.h"

namespace tandem {
namespace {

class FileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / fmt::format("tandem-file-{}", ::getpid());
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
  EXPECT_THROW(read_text(folder_), IoError) << "a directory";
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
