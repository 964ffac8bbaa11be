#include "tandem/hub/fresh_directory.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/message_of_test.h"
#include "tandem/base/temporary_directory_test.h"

namespace tandem::hub {
namespace {

TEST(FreshDirectory, AppearsWhenItIsCommitted) {
  const TemporaryDirectory folder;
  const auto place = folder.path() / "deep" / "out";
  FreshDirectory directory(place);
  write_atomically(directory.path() / "file", "text");
  EXPECT_FALSE(is_there(place));
  directory.commit();
  EXPECT_EQ("text", read_text(place / "file"));
  EXPECT_NE(std::string::npos,
            message_of<ConfigError>([&] { FreshDirectory again(place); }).find("not empty"));
}

TEST(FreshDirectory, AnEmptyOneIsReplacedAndADraftThatFailedIsRemoved) {
  const TemporaryDirectory folder;
  const auto place = folder.path() / "out";
  std::filesystem::create_directory(place);
  { FreshDirectory dropped(place); }
  EXPECT_EQ(1, std::distance(std::filesystem::directory_iterator(folder.path()), {}));
  FreshDirectory(place).commit();
  EXPECT_TRUE(is_there(place));
}

TEST(FreshDirectory, WhatADeadProcessLeftIsRemovedAndWhatALivingOneWritesStays) {
  const TemporaryDirectory folder;
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  const auto dead = folder.path() / fmt::format("out.partial-{}", child);
  const auto living = folder.path() / fmt::format("out.partial-{}", ::getppid());
  for (const auto& draft : {dead, living}) std::filesystem::create_directory(draft);
  FreshDirectory(folder.path() / "out").commit();
  EXPECT_FALSE(is_there(dead));
  EXPECT_TRUE(is_there(living));
}

}  // namespace
}  // namespace tandem::hub
