// fp32 tensors that lie in memory in halves: files and digests are those of the whole numbers.
#include <bit>
#include <cstring>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/split_float.h"
#include "tandem/base/thread_pool.h"
#include "tandem/checkpoint/example_state_test.h"
#include "tandem/checkpoint/reader.h"
#include "tandem/checkpoint/writer.h"

namespace tandem {
namespace {

constexpr int64_t kRows = 301, kCols = 1999;  // two digest blocks and a ragged end

class Halves : public CheckpointTest {
 protected:
  Halves() {
    for (size_t i = 0; i < floats_.size(); ++i) {
      auto bits = static_cast<uint32_t>(i * 2654435761u);
      if ((bits & 0x7fffffffu) > 0x7f800000u) bits &= 0xff800000u;  // a NaN would not stay: infinities do
      floats_[i] = std::bit_cast<float>(bits);
    }
    split_floats(whole(), std::as_writable_bytes(std::span(high_)), std::as_writable_bytes(std::span(low_)));
  }

  std::span<const std::byte> whole() const { return std::as_bytes(std::span(floats_)); }
  TensorView plain_view() const { return {"w", DType::F32, {kRows, kCols}, whole()}; }
  TensorView halves_view() const {
    TensorView view("w", DType::F32, {kRows, kCols}, std::as_bytes(std::span(high_)));
    view.low = std::as_bytes(std::span(low_));
    return view;
  }
  std::string data(int64_t step) const {
    return read_text(folder / fmt::format("step-{:08}", step) / "rank-00000.ckpt");
  }
  std::vector<std::string> digests(int64_t step) const {
    return read_manifest(folder / fmt::format("step-{:08}", step)).tensors[0].shards[0].digests;
  }

  std::vector<float> floats_ = std::vector<float>(kRows * kCols);
  std::vector<uint16_t> high_ = std::vector<uint16_t>(kRows * kCols);
  std::vector<int16_t> low_ = std::vector<int16_t>(kRows * kCols);
};

TEST_F(Halves, AreSavedAsTheNumbersTheyMake) {
  ThreadPool pool(2);
  CheckpointWriter writer(folder, 0, &pool);
  const std::vector<TensorView> plain = {plain_view()}, halves = {halves_view()};
  writer.save(at_step(1), plain);
  writer.save(at_step(2), halves);
  EXPECT_EQ(data(2), data(1));
  EXPECT_EQ(digests(2), digests(1));
  EXPECT_EQ(staging_bytes(halves), staging_bytes(plain));
}

TEST_F(Halves, AreStagedAsTheNumbersTheyMake) {
  CheckpointWriter writer(folder, 0);
  const std::vector<TensorView> plain = {plain_view()}, halves = {halves_view()};
  writer.save(at_step(1), plain);
  std::vector<std::byte> staging(static_cast<size_t>(staging_bytes(halves)));
  writer.save(at_step(2), halves, staging);
  std::fill(high_.begin(), high_.end(), uint16_t{0});  // training goes on
  writer.wait_committed();
  EXPECT_EQ(data(2), data(1));
  EXPECT_EQ(digests(2), digests(1));
}

TEST_F(Halves, MayLieInTheStagingMemoryAlready) {
  CheckpointWriter writer(folder, 0);
  std::vector<TensorView> halves = {plain_view(), halves_view()};
  halves[1].name = "x";
  std::vector<std::byte> staging(static_cast<size_t>(staging_bytes(halves)));
  const auto copy = std::span(staging).subspan(whole().size());
  std::memcpy(copy.data(), high_.data(), copy.size() / 2);
  std::memcpy(copy.data() + copy.size() / 2, low_.data(), copy.size() / 2);
  halves[1].bytes = copy.first(copy.size() / 2);
  halves[1].low = copy.subspan(copy.size() / 2);
  writer.save(at_step(2), halves, staging);
  writer.wait_committed();
  const std::string_view numbers(reinterpret_cast<const char*>(floats_.data()), whole().size());
  EXPECT_TRUE(data(2) == std::string(numbers) + std::string(numbers));
  verify(read_manifest(folder / "step-00000002"));
}

// Whole tensors and boxes of them, next to a target that takes the numbers as they are.
TEST_F(Halves, AreLoadedFromAnyCheckpoint) {
  CheckpointWriter(folder, 0).save(at_step(1), std::vector<TensorView>{plain_view()});
  const Manifest manifest = read_manifest(folder / "step-00000001");
  ThreadPool pool(2);
  for (const Box& box : {whole_box({kRows, kCols}), Box{7, 290, 0, kCols}, Box{3, 299, 5, 1001}}) {
    const auto elems = static_cast<size_t>(box.elems());
    std::vector<uint16_t> high(elems);
    std::vector<int16_t> low(elems);
    std::vector<float> wide(elems);
    TensorTarget halves("w", DType::F32, {kRows, kCols}, box, std::as_writable_bytes(std::span(high)));
    halves.low = std::as_writable_bytes(std::span(low));
    load(manifest, std::vector<TensorTarget>{halves}, &pool);
    load(manifest,
         std::vector<TensorTarget>{
             {"w", DType::F32, {kRows, kCols}, box, std::as_writable_bytes(std::span(wide))}},
         &pool);
    for (size_t i = 0; i < elems; ++i) {
      ASSERT_EQ(high[i], split_float(wide[i]).high) << i;
      ASSERT_EQ(low[i], split_float(wide[i]).low) << i;
    }
  }
}

TEST_F(Halves, OfUnequalSizesAreABug) {
  CheckpointWriter writer(folder, 0);
  std::vector<TensorView> halves = {halves_view()};
  halves[0].low = halves[0].low.first(halves[0].low.size() - 4);
  EXPECT_THROW(writer.save(at_step(1), halves), BugError);
}

}  // namespace
}  // namespace tandem
