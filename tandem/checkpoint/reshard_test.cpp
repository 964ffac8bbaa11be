// A checkpoint of any layout loads into any other, bit for bit, and nothing damaged gets through on the way.
#include "tandem/base/error.h"
#include "tandem/base/thread_pool.h"
#include "tandem/checkpoint/example_ranks_test.h"
#include "tandem/checkpoint/inspect.h"
#include "tandem/checkpoint/layout.h"
#include "tandem/checkpoint/running_digest.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using Kind = ExampleLayout::Kind;

class Reshard : public CheckpointTest {};

// Next to small tensors of odd sizes some of several digest blocks, with rows shorter and longer than one.
ExampleState large_state(uint64_t value) {
  ExampleState state(value);
  state.add("conv", DType::F32, {6, 5, 3, 3});
  state.add("rows", DType::F32, {701, 900});
  state.add("long_rows", DType::U8, {3, 2'500'001});
  state.add("vector", DType::F32, {777'777});
  state.fill(value);
  return state;
}

TEST_F(Reshard, AnyLayoutLoadsIntoAnyOther) {
  const ExampleLayout layouts[] = {{Kind::Whole, 1, 1},   {Kind::Whole, 3, 2}, {Kind::Rows, 4, 3},
                                   {Kind::Columns, 3, 4}, {Kind::Grid, 4, 5},  {Kind::Grid, 8, 6},
                                   {Kind::Flat, 4, 7},    {Kind::Flat, 7, 8}};
  const ExampleState state = large_state(9), empty = large_state(0);
  int64_t step = 0;
  for (const ExampleLayout& layout : layouts) save_as_ranks(folder, at_step(++step), state, layout);
  ThreadPool pool(2);
  const Manifest first = read_manifest(folder / "step-00000001");
  for (const std::string& name : list_checkpoints(folder)) {
    const Manifest manifest = read_manifest(folder, name);
    verify(manifest, &pool);
    for (const Difference& item : compare(first, manifest, &pool))
      ADD_FAILURE() << name << ": " << item.tensor << ": " << item.what;
    for (const ExampleLayout& layout : layouts) {
      for (int rank = 0; rank < layout.num_ranks; ++rank) {
        RankMemory loaded(empty, layout, rank);
        load(manifest, loaded.targets(), rank % 2 == 0 ? &pool : nullptr, Match::Subset);
        EXPECT_TRUE(loaded == RankMemory(state, layout, rank))
            << name << " into layout " << static_cast<int>(layout.kind) << ", rank " << rank;
      }
    }
  }
}

TEST_F(Reshard, BoxesThatOverlapAndRepeatAreAllFilled) {
  const ExampleState state = large_state(3);
  save_as_ranks(folder, at_step(1), state, {Kind::Columns, 3, 1});
  const ExampleTensor& tensor = state.tensors[6];  // "rows"
  std::vector<std::vector<std::byte>> memory;
  std::vector<TensorTarget> targets;
  const std::vector<Box> boxes{
      {0, 701, 0, 900}, {100, 600, 7, 8}, {100, 600, 7, 8}, {5, 5, 0, 900}, {300, 301, 1, 899}};
  for (const Box& box : boxes) memory.emplace_back(static_cast<size_t>(box.elems() * 4));
  for (size_t i = 0; i < boxes.size(); ++i)
    targets.push_back({tensor.name, tensor.dtype, tensor.shape, boxes[i], memory[i]});
  load(read_manifest(folder / "step-00000001"), targets, nullptr, Match::Subset);
  EXPECT_EQ(memory[0], tensor.bytes);
  EXPECT_EQ(memory[1], memory[2]);
  for (size_t row = 0; row < 500; ++row) {
    ASSERT_TRUE(
        std::equal(&memory[1][row * 4], &memory[1][row * 4] + 4, &tensor.bytes[((row + 100) * 900 + 7) * 4]));
  }
  EXPECT_TRUE(std::equal(memory[4].begin(), memory[4].end(), tensor.bytes.begin() + (300 * 900 + 1) * 4));
}

// A flipped byte fails exactly the reads that have its block, and those of the rest go on.
TEST_F(Reshard, AFlippedByteIsFoundByEveryReadOfItsBlock) {
  ExampleState state(1);
  state.tensors.clear();
  state.add("w", DType::U8, {10, 1'000'000});
  state.fill(4);
  save_as_ranks(folder, at_step(1), state, {Kind::Whole, 1, 1});
  const Manifest manifest = read_manifest(folder / "step-00000001");
  const auto block_of = [&](int64_t byte) { return byte / manifest.digest_block; };
  std::mt19937_64 random(5);
  int found = 0, missed = 0;
  for (int round = 0; round < 200; ++round) {
    const auto byte = static_cast<int64_t>(random() % 10'000'000);
    const bool is_near = round % 2 == 0;
    const auto row = is_near ? byte / 1'000'000 : static_cast<int64_t>(random() % 10);
    const auto col =
        is_near ? std::min<int64_t>(byte % 1'000'000, 999'000) : static_cast<int64_t>(random() % 999'000);
    const Box box{row, std::min<int64_t>(10, row + 1 + static_cast<int64_t>(random() % 2)), col, col + 1000};
    bool reads_it = false;  // the runs are shorter than a block: their ends tell
    for (int64_t r = box.row_begin; r < box.row_end; ++r) {
      reads_it |= block_of(r * 1'000'000 + col) == block_of(byte) ||
                  block_of(r * 1'000'000 + col + 999) == block_of(byte);
    }
    std::vector<std::byte> memory(static_cast<size_t>(box.elems()));
    const TensorTarget target{"w", DType::U8, {10, 1'000'000}, box, memory};
    flip_byte(folder / "step-00000001" / "rank-00000.ckpt", byte);
    if (reads_it) {
      ++found;
      EXPECT_THROW(load(manifest, {&target, 1}), DataError) << "byte " << byte << ", " << to_string(box);
    } else {
      ++missed;
      EXPECT_NO_THROW(load(manifest, {&target, 1})) << "byte " << byte << ", " << to_string(box);
    }
    flip_byte(folder / "step-00000001" / "rank-00000.ckpt", byte);
  }
  EXPECT_GT(found, 5);
  EXPECT_GT(missed, 5);
}

}  // namespace
}  // namespace tandem
