#include "tandem/checkpoint/layout.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tandem/checkpoint/example_state_test.h"
#include "tandem/checkpoint/pending.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

class Layout : public CheckpointTest {
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
};

TEST_F(Layout, ListsStepsInNumericalOrderAndNothingElse) {
  for (const char* name :
       {"step-100000000", "step-00000200", "step-00000030", "step-old", ".tmp-step-00000300-1"}) {
    fs::create_directory(folder / name);
  }
  point_latest(folder, "step-00000200");
  EXPECT_EQ(
      list_checkpoints(folder),
      (std::vector<fs::path>{folder / "step-00000030", folder / "step-00000200", folder / "step-100000000"}));
  EXPECT_TRUE(list_checkpoints(folder / "missing").empty());
}

TEST_F(Layout, LatestMovesToTheNewName) {
  for (const char* name : {"step-00000001", "step-00000002"}) {
    fs::create_directory(folder / name);
    put(folder / name / "a", name);
    point_latest(folder, name);
    EXPECT_EQ(text_of(folder / "latest" / "a"), name);
  }
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step-00000001", "step-00000002"}));
}

TEST_F(Layout, LeftoversOfTheDeadGoAndThoseOfTheLivingStay) {
  fs::create_directory(folder / ".tmp-step-00000300-99");
  put(folder / ".tmp-step-00000300-99" / "rank-00000.ckpt", "half");
  fs::create_directory(folder / "step-00000200");
  fs::create_directory_symlink("step-00000200", folder / ".tmp-latest-99");
  const PendingDirectory living(folder, "step-00000400", {.token = "1"});
  EXPECT_TRUE(remove_leftovers(folder).empty());
  EXPECT_EQ(names(), (std::vector<std::string>{living.path().filename(), "step-00000200"}));
  EXPECT_TRUE(remove_leftovers(folder / "missing").empty());
}

TEST_F(Layout, WhatWasSetAsideGetsItsNameBackUnlessAnotherHasIt) {
  for (const char* name : {"step-00000100", "step-00000200"}) {
    fs::create_directory(folder / name);
    put(folder / name / "a", "old");
    fs::rename(folder / name, aside_path(folder / name));
  }
  fs::create_directory(folder / "step-00000200");
  put(folder / "step-00000200" / "a", "new");
  put_back_replaced(folder);
  EXPECT_EQ(text_of(folder / "step-00000100" / "a"), "old");
  EXPECT_EQ(text_of(folder / "step-00000200" / "a"), "new");
  remove_leftovers(folder);
  EXPECT_EQ(names(), (std::vector<std::string>{"step-00000100", "step-00000200"}));
}

}  // namespace
}  // namespace tandem
