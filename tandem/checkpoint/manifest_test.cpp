#include "tandem/checkpoint/manifest.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tandem/base/error.h"

namespace tandem {
namespace {

// One tensor in four shards in two files, as a mesh of 2 x 2 would write it.
Manifest sharded() {
  Manifest manifest;
  manifest.meta.step = 120;
  manifest.meta.loss = 0.1;
  manifest.meta.mesh = {2, 2, 1};
  manifest.meta.config = {{"name", "quick \"start\""}, {"lr", 3e-4}};
  manifest.meta.scalars = {{"seed", 18446744073709551615ull}, {"position", {{"epoch", 1}, {"index", 77}}}};
  manifest.sequence = 9;
  manifest.hostname = "node-1";
  manifest.time = "2026-01-01T00:00:00.000Z";
  manifest.digest_block = 16;
  manifest.files = {{"rank-00000.ckpt", 48}, {"rank-00001.ckpt", 48}};
  TensorEntry tensor{"w", DType::F32, {4, 6}, "", {}};
  for (int64_t row = 0; row < 2; ++row) {
    for (int64_t column = 0; column < 2; ++column) {
      tensor.shards.push_back({column == 0 ? "rank-00000.ckpt" : "rank-00001.ckpt",
                               row * 24,
                               24,
                               {row * 2, row * 2 + 2, column * 3, column * 3 + 3},
                               {"d", "e"}});
    }
  }
  manifest.tensors.push_back(tensor);
  return manifest;
}

void expect_data_error(const Manifest& manifest, const std::string& part) {
  try {
    parse_manifest(render_manifest(manifest), "here");
    ADD_FAILURE() << "expected a DataError with: " << part;
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    EXPECT_TRUE(std::string(error.what()).starts_with("here: ")) << error.what();
  }
}

TEST(Manifest, ComesBackAsItWasWritten) {
  const Manifest before = sharded();
  const Manifest after = parse_manifest(render_manifest(before), "here");
  EXPECT_EQ(render_manifest(after), render_manifest(before));
  EXPECT_EQ(after.meta.step, 120);
  EXPECT_EQ(after.meta.loss, 0.1);
  EXPECT_EQ(after.meta.scalars["seed"], 18446744073709551615ull);
  EXPECT_EQ(after.find("w")->shards[3].box, (Box{2, 4, 3, 6}));
  EXPECT_EQ(after.meta.mesh, (MeshShape{2, 2, 1}));
  EXPECT_EQ(after.find("v"), nullptr);
  EXPECT_EQ(after.total_bytes(), 96);
}

TEST(Manifest, EveryFlippedByteIsFound) {
  const std::string text = render_manifest(sharded());
  for (size_t i = 0; i < text.size(); ++i) {
    for (const char mask : {'\x01', '\x20'}) {
      std::string damaged = text;
      damaged[i] = static_cast<char>(damaged[i] ^ mask);
      EXPECT_THROW(parse_manifest(damaged, "here"), DataError) << "byte " << i << ": '" << text[i] << "'";
    }
  }
}

TEST(Manifest, EveryShorterTextIsRefused) {
  const std::string text = render_manifest(sharded());
  for (size_t size = 0; size < text.size(); ++size) {
    EXPECT_THROW(parse_manifest(text.substr(0, size), "here"), DataError) << size;
  }
}

TEST(Manifest, ALossThatIsNotANumberComesBackAsOne) {
  Manifest manifest = sharded();
  manifest.meta.loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(std::isnan(parse_manifest(render_manifest(manifest), "here").meta.loss));
}

TEST(Manifest, TextThatIsNotUtf8DoesNotStopASave) {
  Manifest manifest = sharded();
  manifest.meta.config["name"] = "caf\xe9";
  EXPECT_NO_THROW(parse_manifest(render_manifest(manifest), "here"));
}

TEST(Manifest, ShardsMustLieInTheirFilesAndCoverTheirTensor) {
  Manifest manifest = sharded();
  manifest.tensors[0].shards[1].offset = 40;
  expect_data_error(manifest, "'w': a shard lies outside");
  manifest = sharded();
  manifest.tensors[0].shards[1].file = "rank-00002.ckpt";
  expect_data_error(manifest, "'w': a shard lies outside");
  manifest = sharded();
  manifest.tensors[0].shards[2].box.row_end = 5;
  expect_data_error(manifest, "'w': a shard lies outside");
  manifest = sharded();
  manifest.tensors[0].shards.pop_back();
  expect_data_error(manifest, "expected shards of 24 elements in all, found 18");
  manifest = sharded();
  manifest.tensors[0].shards[1].box = {0, 2, 2, 5};
  expect_data_error(manifest, "overlapping shards: rows 0:2, cols 0:3 and rows 0:2, cols 2:5");
  manifest = sharded();
  manifest.tensors[0].shards[3].digests.pop_back();
  expect_data_error(manifest, "'w': expected 2 digests of a shard, found 1");
  for (const int64_t block : {int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
    manifest = sharded();
    manifest.digest_block = block;
    expect_data_error(manifest, "'digest_block': expected a whole number of 0 to");
  }
  manifest = sharded();
  manifest.files[0].name = "../rank-00000.ckpt";
  expect_data_error(manifest, "expected a plain file name");
}

}  // namespace
}  // namespace tandem
