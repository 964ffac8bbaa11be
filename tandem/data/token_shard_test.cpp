#include "tandem/data/token_shard.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/base/message_of_test.h"
#include "tandem/base/temporary_directory_test.h"

namespace tandem {
namespace {

std::vector<int32_t> some_tokens(int64_t count, int64_t vocab) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>(i * 7919 % vocab));
  return tokens;
}

std::vector<int32_t> read_all(const TokenShard& shard) {
  std::vector<int32_t> tokens(static_cast<size_t>(shard.info().num_tokens));
  shard.read(0, shard.info().num_tokens, tokens.data());
  return tokens;
}

TEST(TokenShard, GivesBackWhatWasWrittenInBothWidths) {
  const TemporaryDirectory scratch;
  for (const int64_t vocab : {256, 65536, 65537, 100000}) {
    const auto tokens = some_tokens(1001, vocab);
    const ShardInfo written = write_shard(scratch.path() / "a.tokens", tokens, vocab);
    const TokenShard shard(scratch.path() / "a.tokens");
    EXPECT_EQ(shard.info(), written);
    EXPECT_EQ(shard.info().token_bytes, vocab <= 65536 ? 2 : 4);
    EXPECT_EQ(std::filesystem::file_size(scratch.path() / "a.tokens"),
              128u + 1001u * shard.info().token_bytes);
    EXPECT_EQ(read_all(shard), tokens);
    shard.verify();
  }
}

TEST(TokenShard, NamesTheFileAndBothSizesWhenTruncated) {
  const TemporaryDirectory scratch;
  const auto path = scratch.path() / "a.tokens";
  write_shard(path, some_tokens(100, 256), 256);
  std::filesystem::resize_file(path, 300);
  const std::string message = message_of<DataError>([&] { TokenShard{path}; });
  EXPECT_EQ(message, path.string() + ": truncated: expected 328 bytes, found 300; run tandem prepare again");
  std::filesystem::resize_file(path, 50);
  EXPECT_NE(message_of<DataError>([&] { TokenShard{path}; }).find("expected at least 128 bytes, found 50"),
            std::string::npos);
  std::filesystem::resize_file(path, 0);
  EXPECT_NE(message_of<DataError>([&] { TokenShard{path}; }).find("found 0"), std::string::npos);
}

TEST(TokenShard, RefusesWhatIsMissingOrNoShard) {
  const TemporaryDirectory scratch;
  EXPECT_THROW(TokenShard{scratch.path() / "absent.tokens"}, DataError);
  const auto text = scratch.write("text.tokens", std::string(500, 'x'));
  EXPECT_NE(message_of<DataError>([&] { TokenShard{text}; }).find("not a token shard"), std::string::npos);
}

TEST(TokenShard, NoticesAnyFlippedByteOfTheHeader) {
  const TemporaryDirectory scratch;
  const auto path = scratch.path() / "a.tokens";
  const ShardInfo written = write_shard(path, some_tokens(100, 256), 256);
  for (int64_t offset = 0; offset < 72; ++offset) {
    flip_byte(path, offset);
    try {
      EXPECT_NE(TokenShard(path).info(), written) << offset;  // then it disagrees with the index
    } catch (const DataError&) {
    }
    flip_byte(path, offset);
  }
  EXPECT_EQ(TokenShard(path).info(), written);
}

TEST(TokenShard, VerifyNoticesAFlippedToken) {
  const TemporaryDirectory scratch;
  const auto path = scratch.path() / "a.tokens";
  write_shard(path, some_tokens(100, 256), 256);
  flip_byte(path, 128 + 77);
  const TokenShard shard(path);
  EXPECT_NE(message_of<DataError>([&] { shard.verify(); }).find("tokens are damaged: expected digest"),
            std::string::npos);
}

TEST(TokenShard, NeverHandsOutATokenAboveTheLargest) {
  const TemporaryDirectory scratch;
  const auto path = scratch.path() / "a.tokens";
  write_shard(path, some_tokens(100, 256), 256);
  flip_byte(path, 128 + 77);  // the high half of token 38, now at least 0x4000
  const TokenShard shard(path);
  std::vector<int32_t> out(100);
  shard.read(0, 38, out.data());
  EXPECT_THROW(shard.read(30, 20, out.data()), DataError);
}

}  // namespace
}  // namespace tandem
