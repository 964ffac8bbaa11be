#include "tandem/checkpoint/stores/copy.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/checkpoint/example_state_test.h"
#include "tandem/checkpoint/layout.h"
#include "tandem/checkpoint/stores/claim.h"
#include "tandem/checkpoint/stores/unnamed.h"
#include "tandem/store/draft.h"
#include "tandem/store/memory_store_test.h"

namespace tandem {
namespace {

class CopyTest : public CheckpointTest {
 protected:
  CopyReport copy(const StoreRef& from, const StoreRef& to) {
    CopyReport report;
    to->make();
    for (const std::string& name : list_checkpoints(from))
      copy_checkpoint(read_manifest(from, name), to, report, [](int64_t) {});
    return report;
  }
  void save(int64_t step) {
    CheckpointWriter(folder, 0).save(at_step(step), ExampleState(static_cast<uint64_t>(step)).views());
  }
  static void expect_state(const StoreRef& store, int64_t step) {
    ExampleState loaded(0);
    load(read_manifest(store, checkpoint_name(step)), loaded.targets());
    EXPECT_TRUE(loaded == ExampleState(static_cast<uint64_t>(step)));
  }
  const StoreRef store{std::make_shared<MemoryStore>()};
};

TEST_F(CopyTest, ThereAndBackIsTheSameAndASecondTimeDoesNothing) {
  for (const int64_t step : {1, 2}) save(step);
  EXPECT_EQ(copy(folder, store).copied, 2);
  const CopyReport again = copy(folder, store);
  EXPECT_EQ(again.copied, 0);
  EXPECT_EQ(again.skipped, 2);
  const std::filesystem::path other = directory_.path() / "other";
  EXPECT_EQ(copy(store, other).copied, 2);
  for (const int64_t step : {1, 2}) expect_state(other, step);
  EXPECT_EQ(copy(other, store).skipped, 2);
}

TEST_F(CopyTest, GoesOnWhereItWasStopped) {
  save(1);
  ASSERT_EQ(copy(folder, store).copied, 1);
  store->remove("step-00000001/manifest.json");  // killed before the commit
  const CopyReport report = copy(folder, store);
  EXPECT_EQ(report.copied, 1);
  EXPECT_EQ(report.bytes, 0);
  expect_state(store, 1);
}

TEST_F(CopyTest, DamageOnEitherSideIsSeen) {
  save(1);
  ASSERT_EQ(copy(folder, store).copied, 1);
  const Manifest there = read_manifest(store, checkpoint_name(1));
  const std::string name = there.name + "/" + there.files.at(0).name;
  store->remove("step-00000001/manifest.json");
  std::string bytes = read_text(*store->open(name));
  bytes[7] = static_cast<char>(bytes[7] ^ 1);
  store->put(name, bytes);  // is copied again
  EXPECT_GT(copy(folder, store).bytes, 0);
  expect_state(store, 1);
  std::ofstream(folder / "step-00000001" / "rank-00000.ckpt", std::ios::in | std::ios::binary).write("x", 1);
  const StoreRef other{std::make_shared<MemoryStore>()};
  EXPECT_NE(message_of<DataError>([&] { copy(folder, other); }).find("damaged: bytes 0 to"),
            std::string::npos);
  EXPECT_TRUE(other->bundles().empty());
}

TEST_F(CopyTest, ObjectsOfOtherKindsGoTheirIndexLast) {
  const StoreRef data{std::make_shared<MemoryStore>()};
  for (const char* name : {"a.json", "b.bin", "c/d.bin"}) data->put(name, name);
  CopyReport report;
  copy_objects(data, store, report, [](int64_t) {});
  EXPECT_EQ(report.copied, 3);
  EXPECT_EQ(read_text(*store->open("c/d.bin")), "c/d.bin");
  store->put("b.bin", "other");
  copy_objects(data, store, report, [](int64_t) {});
  EXPECT_EQ(report.copied, 4);
  EXPECT_EQ(report.skipped, 2);
}

TEST_F(CopyTest, WhatNoCheckpointNeedsIsFoundAndCanBeFreed) {
  save(1);
  copy(folder, store);
  EXPECT_TRUE(find_unnamed(store).empty());
  store->draft(checkpoint_name(1), "dead")->put("rank-00000.ckpt", "half");
  store->draft(checkpoint_name(2), "dead")->put("rank-00000.ckpt", "half");
  store->put("something/else", "is not ours");
  for (const int64_t sequence : {1, 2}) take_claim(store, "a", sequence);
  ASSERT_EQ(find_unnamed(store).size(), 3u);
  for (const Unnamed& unnamed : find_unnamed(store)) remove_unnamed(store, unnamed);
  EXPECT_TRUE(find_unnamed(store).empty());
  EXPECT_TRUE(store->exists("something/else"));
  expect_state(store, 1);

  std::filesystem::create_directory(folder / ".tmp-step-00000009-dead");
  ASSERT_EQ(find_unnamed(folder).size(), 1u);
  remove_unnamed(folder, find_unnamed(folder).at(0));
  EXPECT_TRUE(find_unnamed(folder).empty());
}

}  // namespace
}  // namespace tandem
