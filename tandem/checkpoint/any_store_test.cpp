// Checkpoints need no more of a store than its interface: what matters most of them, on a disk and in a store
// that has no renames, locks and links.
#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/checkpoint/example_ranks_test.h"
#include "tandem/checkpoint/layout.h"
#include "tandem/checkpoint/mend.h"
#include "tandem/store/memory_store_test.h"
#include "tandem/store/s3/fake_server_test.h"

namespace tandem {
namespace {

class AnyStore : public CheckpointTest, public testing::WithParamInterface<const char*> {
 protected:
  void save(CheckpointWriter& writer, int64_t step, uint64_t seed) const {
    writer.save(at_step(step), ExampleState(seed).views());
  }
  static std::vector<std::string> steps(std::initializer_list<int64_t> steps) {
    std::vector<std::string> names;
    for (const int64_t step : steps) names.push_back(checkpoint_name(step));
    return names;
  }
  // Whether the newest checkpoint is of that step and has that content.
  void expect_newest(int64_t step, uint64_t seed) const {
    ExampleState loaded(0);
    const Latest latest = load_latest(store, loaded.targets());
    ASSERT_TRUE(latest.manifest.has_value());
    EXPECT_TRUE(latest.skipped.empty());
    EXPECT_EQ(latest.manifest->meta.step, step);
    EXPECT_TRUE(loaded == ExampleState(seed));
    verify(*latest.manifest);
  }
  // Damages the first data file of a checkpoint.
  void damage(int64_t step) const {
    const Manifest manifest = read_manifest(store, checkpoint_name(step));
    std::string text = read_text(*manifest.open(manifest.files.at(0).name));
    text[5] = static_cast<char>(text[5] ^ 1);
    store->put(manifest.name + "/" + manifest.files.at(0).name, text);
  }

  StoreRef make() const {
    const std::string kind = GetParam();
    if (kind == "disk") return {folder};
    if (kind == "memory") return {std::make_shared<MemoryStore>()};
    return {server_.store("s3://bucket/some/prefix", 1000)};
  }
  const s3::FakeServer server_;
  const StoreRef store = make();
};

TEST_P(AnyStore, GivesBackWhatWasSaved) {
  EXPECT_FALSE(find_latest(store, Check::Sizes).manifest.has_value());
  CheckpointWriter writer(store, 0);
  for (const int64_t step : {10, 20, 30}) save(writer, step, static_cast<uint64_t>(step));
  EXPECT_EQ(list_checkpoints(store), steps({10, 20, 30}));
  expect_newest(30, 30);
  EXPECT_EQ(read_manifest(store, kLatest).meta.step, 30);
  ExampleState loaded(0);
  load(read_manifest(store, checkpoint_name(20)), loaded.targets());
  EXPECT_TRUE(loaded == ExampleState(20));
}

TEST_P(AnyStore, WritesBehindTheNextStep) {
  ExampleState live(1);
  std::vector<std::byte> staging(static_cast<size_t>(staging_bytes(live.views())));
  CheckpointWriter writer(store, 0);
  writer.save(at_step(1), live.views(), staging);
  live.fill(99);
  writer.wait();
  expect_newest(1, 1);
}

TEST_P(AnyStore, KeepsTheNewestOnesAcrossRestarts) {
  {
    CheckpointWriter writer(store, 2);
    for (const int64_t step : {10, 20, 30}) save(writer, step, 1);
    EXPECT_EQ(list_checkpoints(store), steps({20, 30}));
  }
  CheckpointWriter writer(store, 2);
  save(writer, 40, 1);
  EXPECT_EQ(list_checkpoints(store), steps({30, 40}));
  for (const StoredObject& object : store->list("step-00000020")) ADD_FAILURE() << object.name;
}

TEST_P(AnyStore, ASecondSaveOfAStepTakesThePlaceOfTheFirst) {
  CheckpointWriter writer(store, 0);
  for (const int64_t step : {100, 200, 300}) save(writer, step, 1);
  save(writer, 200, 2);  // went back
  EXPECT_EQ(list_checkpoints(store), steps({100, 200, 300}));
  expect_newest(200, 2);
}

TEST_P(AnyStore, ManyRanksSaveOneThatAnyNumberOfRanksReads) {
  const ExampleState state(7);
  save_as_ranks(store, at_step(1), state, {ExampleLayout::Kind::Rows, 4, 3});
  const ExampleLayout two{ExampleLayout::Kind::Columns, 2, 5};
  const Manifest manifest = read_manifest(store, checkpoint_name(1));
  for (int rank = 0; rank < 2; ++rank) {
    RankMemory loaded(ExampleState(0), two, rank);
    load(manifest, loaded.targets(), nullptr, Match::Subset);
    EXPECT_TRUE(loaded == RankMemory(state, two, rank));
  }
  EXPECT_EQ(std::ssize(manifest.files), 4);
}

TEST_P(AnyStore, ARankThatFailsLeavesTheEarlierCheckpointAndNothingElse) {
  { CheckpointWriter(store, 0).save(at_step(1), ExampleState(1).views()); }
  const ExampleLayout layout{ExampleLayout::Kind::Rows, 2, 3};
  const ExampleState state(2);
  CheckpointWriter zero(store, 0, nullptr, {0, 2, "t"});
  run_ranks(2, [&](int rank) {
    if (rank == 1) {
      PendingSave(store, checkpoint_name(1), {1, 2, "t-1"}).fail("no luck");
      return;
    }
    const std::string message =
        message_of<CommError>([&] { zero.save(at_step(1), RankMemory(state, layout, 0).views()); });
    EXPECT_NE(message.find("rank 1: no luck"), std::string::npos) << message;
  });
  expect_newest(1, 1);
  EXPECT_TRUE(mend_checkpoints(store, 0, find_latest(store, Check::Digests)).empty());
  expect_newest(1, 1);
}

TEST_P(AnyStore, ADamagedOneIsSkippedAndNeitherCountsNorGoes) {
  CheckpointWriter writer(store, 0);
  for (const int64_t step : {1, 2, 3}) save(writer, step, static_cast<uint64_t>(step));
  damage(3);
  ExampleState loaded(0);
  const Latest latest = load_latest(store, loaded.targets());
  EXPECT_EQ(latest.manifest->meta.step, 2);
  ASSERT_EQ(latest.skipped.size(), 1u);
  EXPECT_NE(latest.skipped[0].reason.find("damaged: tensor"), std::string::npos) << latest.skipped[0].reason;
  EXPECT_TRUE(mend_checkpoints(store, 1, latest).empty());
  EXPECT_EQ(list_checkpoints(store), steps({2, 3}));
  EXPECT_EQ(store->alias(kLatest), checkpoint_name(2));
}

TEST_P(AnyStore, MendingDoesWhatASaveWasKilledBefore) {
  {
    CheckpointWriter writer(store, 0);
    for (const int64_t step : {1, 2, 3}) save(writer, step, static_cast<uint64_t>(step));
  }
  store->set_alias(kLatest, checkpoint_name(2));
  const auto half = store->draft(checkpoint_name(4), "dead");
  half->put("rank-00000.ckpt", "half");
  EXPECT_EQ(list_checkpoints(store), steps({1, 2, 3}));
  expect_newest(3, 3);
  EXPECT_TRUE(mend_checkpoints(store, 1, find_latest(store, Check::Digests)).empty());
  EXPECT_EQ(list_checkpoints(store), steps({3}));
  EXPECT_EQ(store->alias(kLatest), checkpoint_name(3));
}

INSTANTIATE_TEST_SUITE_P(, AnyStore, testing::Values("disk", "memory", "s3"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tandem
