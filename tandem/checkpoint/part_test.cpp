#include "tandem/checkpoint/part.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/base/message_of_test.h"
#include "tandem/checkpoint/manifest_json.h"
#include "tandem/checkpoint/running_digest.h"

namespace tandem {
namespace {

Part part_of(int rank, const Shape& shape, const Box& box) {
  static const std::vector<std::byte> memory(1024);
  const TensorView view{"w", DType::F32, shape, box,
                        std::span(memory).first(static_cast<size_t>(box.elems() * 4))};
  std::vector<ShardPlace> places;
  Part part = describe_part(rank, {&view, 1}, places);
  part.tensors[0].shards[0].digests = {"d"};
  return part;
}

std::string merge_error(std::vector<Part> parts) {
  Manifest manifest;
  try {
    merge_parts(std::move(parts), manifest);
  } catch (const DataError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Part, ComesBackAsItWasWrittenAndNotWhenDamaged) {
  const Part part = part_of(3, {4, 6}, {1, 3, 2, 6});
  const std::string text = render_part(part);
  const Part back = parse_part(text, "here");
  EXPECT_EQ(back.rank, 3);
  EXPECT_EQ(render_part(back), text);
  EXPECT_EQ(back.tensors[0].shards[0].box, (Box{1, 3, 2, 6}));
  for (size_t i = 0; i < text.size(); ++i) {
    std::string damaged = text;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    EXPECT_THROW(parse_part(damaged, "here"), DataError) << "byte " << i;
  }
}

TEST(Part, WholeNumbersAreWholeAndInTheirBounds) {
  const Part part = part_of(3, {4, 6}, {1, 3, 2, 6});
  for (const char* key : {"rank", "digest_block"}) {
    for (const nlohmann::json& wrong : {nlohmann::json(1.5), nlohmann::json(-1), nlohmann::json("1"),
                                        nlohmann::json(18446744073709551615ull), nlohmann::json()}) {
      nlohmann::json content = nlohmann::json::parse(render_part(part));
      content.erase("digest");
      content[key] = wrong;
      const std::string message = message_of<DataError>([&] { parse_part(seal(content), "here"); });
      EXPECT_NE(message.find(fmt::format("here: '{}': expected a whole number of", key)), std::string::npos)
          << message;
    }
  }
}

TEST(Part, PartsOfAllRanksMakeTensorsWhole) {
  Manifest manifest;
  merge_parts(
      {part_of(0, {4, 6}, {0, 4, 0, 2}), part_of(1, {4, 6}, {0, 2, 2, 6}), part_of(2, {4, 6}, {2, 4, 2, 6})},
      manifest);
  ASSERT_EQ(manifest.tensors.size(), 1u);
  EXPECT_EQ(manifest.tensors[0].shards.size(), 3u);
  EXPECT_EQ(manifest.files.size(), 3u);
  EXPECT_EQ(manifest.files[2].name, "rank-00002.ckpt");
  EXPECT_EQ(manifest.digest_block, kDigestBlock);
}

TEST(Part, MissingDoubleAndContradictingPiecesAreRefused) {
  EXPECT_NE(merge_error({part_of(0, {4, 6}, {0, 4, 0, 2}), part_of(1, {4, 6}, {0, 2, 2, 6})})
                .find("'w': expected shards of 24 elements in all, found 16"),
            std::string::npos);
  EXPECT_NE(
      merge_error({part_of(0, {4, 6}, {0, 3, 0, 6}), part_of(1, {4, 6}, {2, 4, 0, 6})}).find("overlapping"),
      std::string::npos);
  EXPECT_EQ(merge_error({part_of(0, {4, 6}, {0, 2, 0, 6}), part_of(1, {4, 7}, {2, 4, 0, 6})}),
            "tensor 'w': rank 0 has f32 [4,6], rank 1 has f32 [4,7]");
}

TEST(Part, PartsWithBlocksOfDifferentLengthsAreRefused) {
  Part longer = part_of(1, {4, 6}, {2, 4, 0, 6});
  longer.digest_block = 2 * kDigestBlock;
  EXPECT_EQ(merge_error({part_of(0, {4, 6}, {0, 2, 0, 6}), longer}),
            "rank 1 has digests of 2097152 bytes each, rank 0 of 1048576: ranks run different versions");
}

}  // namespace
}  // namespace tandem
