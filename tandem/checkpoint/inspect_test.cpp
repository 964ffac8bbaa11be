#include "tandem/checkpoint/inspect.h"

#include "tandem/base/digest.h"
#include "tandem/base/error.h"
#include "tandem/base/thread_pool.h"
#include "tandem/checkpoint/example_ranks_test.h"
#include "tandem/checkpoint/example_state_test.h"
#include "tandem/checkpoint/running_digest.h"
#include "tandem/checkpoint/writer.h"

namespace tandem {
namespace {

class Inspect : public CheckpointTest {};

TEST_F(Inspect, ShowsTheMomentTheSizesAndEveryTensor) {
  CheckpointWriter(folder, 0).save(at_step(3), ExampleState(1).views());
  const Manifest manifest = read_manifest(folder / "step-00000003");
  const std::string table = describe_checkpoint(manifest, true);
  for (const char* part : {"3 (epoch 2, 96 samples, batch 32)", "loss       2.25",
                           "17.0 KiB in 5 tensors, 1 file", "adam.m.embed.weight  f32    [7,300]"}) {
    EXPECT_NE(table.find(part), std::string::npos) << "no '" << part << "' in\n" << table;
  }
  EXPECT_EQ(describe_checkpoint(manifest, false).find("adam"), std::string::npos);
}

TEST_F(Inspect, ComparesTensorsByTheirDigests) {
  ExampleState changed(1);
  changed.tensors[2].bytes[5] ^= std::byte{1};
  changed.tensors[4].dtype = DType::F32;
  changed.tensors.erase(changed.tensors.begin() + 3);
  changed.add("extra", DType::U8, {1});
  CheckpointWriter writer(folder, 0);
  writer.save(at_step(1), ExampleState(1).views());
  writer.save(at_step(2), ExampleState(1).views());
  writer.save(at_step(3), changed.views());
  const Manifest first = read_manifest(folder / "step-00000001");
  EXPECT_TRUE(compare(first, read_manifest(folder / "step-00000002")).empty());
  std::string text;
  for (const Difference& difference : compare(first, read_manifest(folder / "step-00000003"))) {
    text += fmt::format("{}: {}; ", difference.tensor, difference.what);
  }
  EXPECT_EQ(text,
            "data.mask: values; adam.m.embed.weight: only in the first; step_count: dtype: i32 and f32; "
            "extra: only in the second; ");
}

TEST_F(Inspect, ComparesTensorsThatAreCutDifferently) {
  ExampleState state(1);
  state.add("long", DType::U8, {2, 9'000'000});  // longer than what is read at a time
  state.add("tall", DType::F32, {80'000, 30});
  state.fill(1);
  save_as_ranks(folder, at_step(1), state, {ExampleLayout::Kind::Columns, 3, 1});
  save_as_ranks(folder, at_step(2), state, {ExampleLayout::Kind::Flat, 2, 2});
  state.tensors[5].bytes[17'999'999] ^= std::byte{1};
  state.tensors[1].bytes[0] ^= std::byte{1};
  save_as_ranks(folder, at_step(3), state, {ExampleLayout::Kind::Rows, 2, 3});
  const Manifest first = read_manifest(folder / "step-00000001"),
                 second = read_manifest(folder / "step-00000002"),
                 third = read_manifest(folder / "step-00000003");
  EXPECT_TRUE(first.find("long")->digest.empty());
  EXPECT_EQ(tensor_digest(first, *first.find("tall")),
            combine_digests(digest_and_copy(state.tensors[6].bytes, {})));
  ThreadPool pool(2);
  EXPECT_TRUE(compare(first, second, &pool).empty());
  std::string text;
  for (const Difference& item : compare_all(second, third)) text += item.tensor + ": " + item.what + "; ";
  EXPECT_EQ(
      text,
      "embed.weight: ; block.0.scale: values; data.mask: ; adam.m.embed.weight: ; long: values; tall: ; "
      "step_count: ; ");
}

TEST_F(Inspect, ComparesWithDigestsOfWholeTensorsAsVersion1HadThem) {
  const ExampleState state(1, 50'000);  // more than one block
  CheckpointWriter(folder, 0).save(at_step(1), state.views());
  const Manifest now = read_manifest(folder / "step-00000001");
  Manifest old = now;
  old.digest_block = 0;
  for (size_t i = 0; i < old.tensors.size(); ++i) {
    old.tensors[i].digest = digest_hex(state.tensors[i].bytes);
    old.tensors[i].shards[0].digests = {old.tensors[i].digest};
  }
  ASSERT_NE(old.tensors[0].digest, now.tensors[0].digest);
  EXPECT_TRUE(compare(old, now).empty());
  old.tensors[0].shards[0].digests = {std::string(32, '0')};
  EXPECT_THROW(compare(old, now), DataError);  // it is the data that is compared
}

// One rank knows how small its checkpoint is; the ranks of a group that is not told have longer blocks.
TEST_F(Inspect, ComparesWithDigestsOfBlocksOfOtherLengths) {
  ExampleState state(1, 50'000);
  save_as_ranks(folder, at_step(1), state, {ExampleLayout::Kind::Whole, 1, 1});
  save_as_ranks(folder, at_step(2), state, {ExampleLayout::Kind::Whole, 2, 1});
  state.tensors[0].bytes.back() ^= std::byte{1};
  save_as_ranks(folder, at_step(3), state, {ExampleLayout::Kind::Whole, 2, 1});
  const Manifest small = read_manifest(folder / "step-00000001"),
                 large = read_manifest(folder / "step-00000002"),
                 other = read_manifest(folder / "step-00000003");
  EXPECT_EQ(small.digest_block, kLeastDigestBlock);
  EXPECT_EQ(large.digest_block, kDigestBlock);
  const std::string name = state.tensors[0].name;
  ASSERT_NE(small.find(name)->digest, large.find(name)->digest);
  EXPECT_TRUE(compare(small, large).empty());
  EXPECT_TRUE(compare(large, small).empty());
  EXPECT_EQ(compare(small, other).size(), 1u);
  EXPECT_EQ(compare(large, other).size(), 1u);
}

TEST_F(Inspect, ShowsTheMeshAndWhereTheShardsAre) {
  CheckpointMeta meta = at_step(1);
  meta.mesh = {1, 2, 1};
  save_as_ranks(folder, meta, ExampleState(1), {ExampleLayout::Kind::Rows, 2, 5});
  const std::string table = describe_checkpoint(read_manifest(folder / "step-00000001"), true);
  for (const char* part : {"data 1, tensor 2, pipeline 1", "5 tensors, 2 files, ",
                           "by shard\n  rows 0:", ", cols 0:300: rank-00001.ckpt, bytes 0 to "}) {
    EXPECT_NE(table.find(part), std::string::npos) << "no '" << part << "' in\n" << table;
  }
}

}  // namespace
}  // namespace tandem
