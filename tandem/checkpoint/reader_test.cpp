#include "tandem/checkpoint/reader.h"

#include "tandem/base/digest.h"
#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/thread_pool.h"
#include "tandem/checkpoint/example_state.h"
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
  expect_skipped_for_20("rank-00000.ckpt: file of the checkpoint is missing");
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

TEST_F(Reader, ASubsetLoadsWithoutTheRest) {
  ExampleState fewer(0);
  fewer.tensors.resize(2);
  load(read_manifest(folder / "step-00000010" / "manifest.json"), fewer.targets(), nullptr, Match::Subset);
  EXPECT_EQ(fewer.tensors[0].bytes, ExampleState(10).tensors[0].bytes);
  EXPECT_EQ(fewer.tensors[1].bytes, ExampleState(10).tensors[1].bytes);
}

// As later versions with many ranks write it: cut along any dims, in several files.
TEST_F(Reader, PutsATensorTogetherFromShardsCutAlongEveryDim) {
  const Shape shape{6, 5, 4};
  std::vector<float> whole(static_cast<size_t>(shape.elems()));
  for (size_t i = 0; i < whole.size(); ++i) whole[i] = static_cast<float>(i);
  const fs::path directory = folder / "step-00000040";
  fs::create_directory(directory);
  Manifest manifest;
  TensorEntry tensor{"w", DType::F32, shape, "", {}};
  std::vector<std::vector<float>> contents(2);
  for (int part = 0; part < 8; ++part) {
    const std::vector<int64_t> cuts[] = {{0, 2, 6}, {0, 4, 5}, {0, 1, 4}};
    Shard shard;
    for (size_t dim = 0; dim < 3; ++dim) {
      const auto side = static_cast<size_t>(part >> dim & 1);
      shard.begin.push_back(cuts[dim][side]);
      shard.end.push_back(cuts[dim][side + 1]);
    }
    auto& content = contents[static_cast<size_t>(part % 2)];
    const size_t start = content.size();
    for (int64_t i = shard.begin[0]; i < shard.end[0]; ++i) {
      for (int64_t j = shard.begin[1]; j < shard.end[1]; ++j) {
        for (int64_t k = shard.begin[2]; k < shard.end[2]; ++k) {
          content.push_back(whole[static_cast<size_t>((i * 5 + j) * 4 + k)]);
        }
      }
    }
    shard.file = fmt::format("rank-{:05}.ckpt", part % 2);
    shard.offset = static_cast<int64_t>(start * 4);
    shard.bytes = static_cast<int64_t>((content.size() - start) * 4);
    shard.digest = digest_hex(std::as_bytes(std::span(content).subspan(start)));
    tensor.shards.push_back(shard);
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

}  // namespace
}  // namespace tandem
