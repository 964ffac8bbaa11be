#include "tandem/store/disk_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "tandem/base/file.h"
#include "tandem/base/message_of_test.h"
#include "tandem/base/temporary_directory_test.h"
#include "tandem/store/disk_draft.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

class Disk : public testing::Test {
 protected:
  static void write(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }
  std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const auto& entry : fs::directory_iterator(folder)) result.push_back(entry.path().filename());
    std::sort(result.begin(), result.end());
    return result;
  }

  const TemporaryDirectory directory_;
  const fs::path folder = directory_.path();
  DiskStore store{folder};
};

TEST_F(Disk, AnObjectIsAFileABundleADirectoryAnAliasALink) {
  store.put("a", "one");
  const auto draft = store.draft("bundle", "t");
  draft->put("b", "two");
  EXPECT_EQ(names(), (std::vector<std::string>{".tmp-bundle-t", "a"}));
  draft->commit("b", {});
  store.set_alias("latest", "bundle");
  EXPECT_EQ(read_text(folder / "a"), "one");
  EXPECT_EQ(read_text(folder / "bundle" / "b"), "two");
  EXPECT_EQ(read_text(folder / "latest" / "manifest.json"), "b");
  EXPECT_EQ(fs::read_symlink(folder / "latest"), "bundle");
}

TEST_F(Disk, ADirectoryWithoutAnIndexIsListedSoThatSomebodyTellsOfIt) {
  fs::create_directory(folder / "bundle");
  write(folder / "bundle" / "part", "half");
  EXPECT_EQ(store.bundles(), std::vector<std::string>{"bundle"});
}

// Where directories are not renamed, a writer may be killed before it has put anything into its own.
TEST_F(Disk, AnEmptyDirectoryIsNoBundle) {
  fs::create_directory(folder / "bundle");
  EXPECT_TRUE(store.bundles().empty());
}

TEST_F(Disk, LeftoversOfTheDeadGoAndThoseOfTheLivingStay) {
  fs::create_directory(folder / ".tmp-step-00000300-99");
  write(folder / ".tmp-step-00000300-99" / "rank-00000.ckpt", "half");
  write(folder / ".tmp-object-99", "half");
  fs::create_directory(folder / "step-00000200");
  fs::create_directory_symlink("step-00000200", folder / ".tmp-latest-99");
  const auto living = store.draft("step-00000400", "1");
  const auto growing = store.create("object");
  EXPECT_TRUE(store.remove_leftovers(any_bundle).empty());
  EXPECT_EQ(names().size(), 3u);
  growing->finish();
  EXPECT_EQ(names(), (std::vector<std::string>{".tmp-step-00000400-1", "object", "step-00000200"}));
  EXPECT_TRUE(DiskStore(folder / "missing").remove_leftovers(any_bundle).empty());
}

TEST_F(Disk, WhatWasSetAsideGetsItsNameBackUnlessAnotherHasIt) {
  for (const char* name : {"step-00000100", "step-00000200"}) {
    fs::create_directory(folder / name);
    write(folder / name / "a", "old");
    fs::rename(folder / name, aside_path(folder / name));
  }
  fs::create_directory(folder / "step-00000200");
  write(folder / "step-00000200" / "a", "new");
  store.put_back_replaced();
  EXPECT_EQ(read_text(folder / "step-00000100" / "a"), "old");
  EXPECT_EQ(read_text(folder / "step-00000200" / "a"), "new");
  store.remove_leftovers(any_bundle);
  EXPECT_EQ(names(), (std::vector<std::string>{"step-00000100", "step-00000200"}));
}

}  // namespace
}  // namespace tandem
