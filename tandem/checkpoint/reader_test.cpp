#include "tandem/checkpoint/reader.h"

#include "tandem/base/digest.h"
#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/thread_pool.h"
#include "tandem/checkpoint/example_state_test.h"
#include "tandem/checkpoint/writer.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

class Reader : public CheckpointTest {
 protected:
  void SetUp() override {
    CheckpointTest::SetUp();
    CheckpointWriter writer(folder, 0);
    for (int64_t step : {10, 20, 30}) {
      writer.save(at_step(step), ExampleState(static_cast<uint64_t>(step)).views());
    }
  }
  fs::path data(int64_t step) const { return folder / fmt::format("step-{:08}", step) / "rank-00000.ckpt"; }

  void expect_skipped_for_20(const std::string& reason) {
    ExampleState loaded(0);
    const Latest latest = load_latest(folder, loaded.targets());
    ASSERT_TRUE(latest.manifest.has_value());
    EXPECT_EQ(latest.manifest->meta.step, 20);
    EXPECT_TRUE(loaded == ExampleState(20));
    ASSERT_EQ(latest.skipped.size(), 1u);
    EXPECT_EQ(latest.skipped[0].directory, folder / "step-00000030");
    EXPECT_NE(latest.skipped[0].reason.find(reason), std::string::npos) << latest.skipped[0].reason;
    EXPECT_EQ(find_latest(folder, Check::Digests).manifest->meta.step, 20);
  }
};

TEST_F(Reader, FindsTheNewest) {
  ThreadPool pool(3);
  ExampleState loaded(0);
  const Latest latest = load_latest(folder, loaded.targets(), &pool);
  EXPECT_EQ(latest.manifest->meta.step, 30);
  EXPECT_TRUE(latest.skipped.empty());
  EXPECT_TRUE(loaded == ExampleState(30));
}

TEST_F(Reader, AnEmptyOrMissingFolderHasNone) {
  ExampleState loaded(0);
  EXPECT_FALSE(load_latest(folder / "missing", loaded.targets()).manifest.has_value());
  EXPECT_FALSE(find_latest(folder / "missing", Check::Sizes).manifest.has_value());
}

TEST_F(Reader, AnyFlippedByteOfTheDataNamesFileAndTensor) {
  const auto size = static_cast<std::streamoff>(fs::file_size(data(30)));
  ExampleState loaded(0);
  for (std::streamoff offset = 0; offset < size; offset += 997) {
    flip_byte(data(30), offset);
    const std::string message =
        message_of<DataError>([&] { load(read_manifest(folder / "step-00000030"), loaded.targets()); });
    EXPECT_TRUE(message.starts_with(data(30).string())) << message;
    EXPECT_NE(message.find("tensor '"), std::string::npos) << message;
    flip_byte(data(30), offset);
  }
  flip_byte(data(30), size - 1);
  EXPECT_NE(
      message_of<DataError>([&] { verify(read_manifest(folder / "step-00000030")); }).find("'step_count'"),
      std::string::npos);
  expect_skipped_for_20("damaged: tensor 'step_count'");
}

TEST_F(Reader, AFlippedByteOfTheManifestIsSkipped) {
  flip_byte(folder / "step-00000030" / "manifest.json", 100);
  expect_skipped_for_20("manifest.json: ");
}

TEST_F(Reader, AMissingFileIsSkipped) {
  fs::remove(data(30));
  expect_skipped_for_20(
      "rank-00000.ckpt: cannot open: No such file or directory: the checkpoint is not whole without it");
  EXPECT_THROW(read_manifest(folder / "step-00000030"), DataError);
}

TEST_F(Reader, AMissingManifestIsSkipped) {
  fs::remove(folder / "step-00000030" / "manifest.json");
  expect_skipped_for_20("manifest.json: no such file");
}

TEST_F(Reader, ATruncatedFileIsSkipped) {
  fs::resize_file(data(30), fs::file_size(data(30)) - 1);
  expect_skipped_for_20("truncated or replaced");
}

TEST_F(Reader, AFolderOfDamagedOnesIsAnErrorAndNotAFreshStart) {
  for (int64_t step : {10, 20, 30}) flip_byte(data(step), 3);
  ExampleState loaded(0);
  const std::string message = message_of<DataError>([&] { load_latest(folder, loaded.targets()); });
  EXPECT_NE(message.find("none of 3 checkpoints is whole"), std::string::npos) << message;
  EXPECT_FALSE(find_latest(folder, Check::Digests).manifest.has_value());
  EXPECT_EQ(find_latest(folder, Check::Sizes).manifest->meta.step, 30);
}

TEST_F(Reader, ACheckpointOfAnotherModelNamesTheFirstDifference) {
  const Manifest manifest = read_manifest(folder / "step-00000030");
  ExampleState wider(0, 301);
  std::string message = message_of<DataError>([&] { load(manifest, wider.targets()); });
  EXPECT_NE(message.find("tensor 'embed.weight': expected f32 [7,301], found f32 [7,300]"), std::string::npos)
      << message;
  EXPECT_THROW(load_latest(folder, wider.targets()), DataError);

  ExampleState more(0);
  more.add("block.1.scale", DType::F32, {4});
  message = message_of<DataError>([&] { load(manifest, more.targets()); });
  EXPECT_NE(message.find("expected tensor 'block.1.scale' (f32 [4])"), std::string::npos) << message;

  ExampleState fewer(0);
  fewer.tensors.erase(fewer.tensors.begin() + 1);
  message = message_of<DataError>([&] { load(manifest, fewer.targets()); });
  EXPECT_NE(message.find("it holds tensor 'block.0.scale' (bf16 [301])"), std::string::npos) << message;
}

TEST_F(Reader, TheTensorsOfOtherRanksArePartOfTheModel) {
  const Manifest manifest = read_manifest(folder / "step-00000030");
  ExampleState mine(0);
  std::vector<LogicalTensor> model;
  for (const TensorTarget& target : mine.targets())
    model.push_back({target.name, target.dtype, target.shape});
  mine.tensors.resize(2);
  load(manifest, mine.targets(), nullptr, Match::Exact, model);
  EXPECT_EQ(mine.tensors[1].bytes, ExampleState(30).tensors[1].bytes);

  model[4].shape = {2};
  EXPECT_NE(message_of<DataError>([&] {
              load(manifest, mine.targets(), nullptr, Match::Exact, model);
            }).find("'step_count': expected i32 [2], found i32 []"),
            std::string::npos);
  model.pop_back();
  EXPECT_NE(message_of<DataError>([&] {
              load(manifest, mine.targets(), nullptr, Match::Exact, model);
            }).find("it holds tensor 'step_count'"),
            std::string::npos);
}

TEST_F(Reader, HintsMayBeMissingOrUnwanted) {
  const Manifest manifest = read_manifest(folder / "step-00000030");
  ExampleState more(0);
  more.add("fp8.gradients", DType::F32, {4});
  std::ranges::fill(more.tensors.back().bytes, std::byte{7});
  load(manifest, more.targets());
  EXPECT_EQ(more.tensors[0].bytes, ExampleState(30).tensors[0].bytes);
  EXPECT_TRUE(std::ranges::all_of(more.tensors.back().bytes, [](std::byte b) { return b == std::byte{0}; }));

  Manifest with_hint = manifest;
  TensorEntry hint;
  hint.name = "fp8.gradients";
  hint.dtype = DType::F32;
  hint.shape = {4};
  with_hint.tensors.push_back(hint);
  more.tensors.back().shape = {2};
  more.tensors.back().bytes.assign(8, std::byte{7});
  load(with_hint, more.targets());
  EXPECT_TRUE(std::ranges::all_of(more.tensors.back().bytes, [](std::byte b) { return b == std::byte{0}; }));
  ExampleState plain(0);
  load(with_hint, plain.targets());
  EXPECT_EQ(plain.tensors[0].bytes, ExampleState(30).tensors[0].bytes);
}

TEST_F(Reader, ASubsetLoadsWithoutTheRest) {
  ExampleState fewer(0);
  fewer.tensors.resize(2);
  load(read_manifest(folder / "step-00000010" / "manifest.json"), fewer.targets(), nullptr, Match::Subset);
  EXPECT_EQ(fewer.tensors[0].bytes, ExampleState(10).tensors[0].bytes);
  EXPECT_EQ(fewer.tensors[1].bytes, ExampleState(10).tensors[1].bytes);
}

// Put down by hand, as another program might: cut along both dims, in several files, one digest a shard.
TEST_F(Reader, PutsATensorTogetherFromShardsCutAlongBothDims) {
  const Shape shape{6, 5, 4};
  std::vector<float> whole(static_cast<size_t>(shape.elems()));
  for (size_t i = 0; i < whole.size(); ++i) whole[i] = static_cast<float>(i);
  const fs::path directory = folder / "step-00000040";
  fs::create_directory(directory);
  Manifest manifest;
  TensorEntry tensor{"w", DType::F32, shape, "", {}};
  std::vector<std::vector<float>> contents(2);
  const Box boxes[] = {{0, 2, 0, 7}, {0, 2, 7, 20}, {2, 6, 0, 7}, {2, 6, 7, 20}};
  for (size_t part = 0; part < 4; ++part) {
    auto& content = contents[part % 2];
    const size_t start = content.size();
    for (int64_t row = boxes[part].row_begin; row < boxes[part].row_end; ++row) {
      for (int64_t col = boxes[part].col_begin; col < boxes[part].col_end; ++col) {
        content.push_back(whole[static_cast<size_t>(row * 20 + col)]);
      }
    }
    tensor.shards.push_back({fmt::format("rank-{:05}.ckpt", part % 2),
                             static_cast<int64_t>(start * 4),
                             boxes[part].elems() * 4,
                             boxes[part],
                             {digest_hex(std::as_bytes(std::span(content).subspan(start)))}});
  }
  manifest.tensors.push_back(tensor);
  for (size_t rank = 0; rank < 2; ++rank) {
    const auto bytes = std::as_bytes(std::span(contents[rank]));
    manifest.files.push_back({fmt::format("rank-{:05}.ckpt", rank), static_cast<int64_t>(bytes.size())});
    write_atomically(directory / manifest.files[rank].name,
                     {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  write_atomically(directory / "manifest.json", render_manifest(manifest));

  std::vector<float> loaded(whole.size(), -1.0f);
  const TensorTarget target{"w", DType::F32, shape, std::as_writable_bytes(std::span(loaded))};
  load(read_manifest(directory), {&target, 1});
  EXPECT_EQ(loaded, whole);
  flip_byte(directory / "rank-00001.ckpt", 17);
  EXPECT_THROW(load(read_manifest(directory), {&target, 1}), DataError);
}

TEST_F(Reader, ZerosStandForAnOptimizersStateWhereThereAreWeightsOnly) {
  const std::vector<float> weights = {1, 2, 3};
  CheckpointMeta meta = at_step(0);
  const auto save = [&](bool weights_only) {
    meta.scalars["weights_only"] = weights_only;
    const TensorView view{"w", DType::F32, {3}, std::as_bytes(std::span(weights))};
    CheckpointWriter(folder, 1).save(meta, {&view, 1});
    return read_manifest(folder / "step-00000000");
  };
  std::vector<float> w(3, 9), m(3, 9);
  const std::vector<TensorTarget> targets = {
      {"w", DType::F32, {3}, std::as_writable_bytes(std::span(w))},
      {"adam_m:w", DType::F32, {3}, std::as_writable_bytes(std::span(m))}};
  EXPECT_THROW(load(save(false), targets), DataError);
  const Manifest manifest = save(true);
  load(manifest, targets);
  EXPECT_EQ(weights, w);
  EXPECT_EQ(std::vector<float>(3, 0), m);
  const TensorTarget other{"v", DType::F32, {3}, std::as_writable_bytes(std::span(m))};
  EXPECT_THROW(load(manifest, {&other, 1}), DataError) << "a weight is still missed";
}

}  // namespace
}  // namespace tandem
