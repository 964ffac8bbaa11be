#include "tandem/data/token_shard.h"

#include <gtest/gtest.h>

#include <fstream>

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
  for (int64_t offset = 0; offset < 112; ++offset) {
    flip_byte(path, offset);
    try {
      EXPECT_NE(TokenShard(path).info(), written) << offset;  // then it disagrees with the index
    } catch (const DataError&) {
    }
    flip_byte(path, offset);
  }
  EXPECT_EQ(TokenShard(path).info(), written);
}

TEST(TokenShard, KnowsWhereDocumentsBegin) {
  const TemporaryDirectory scratch;
  const auto path = scratch.path() / "a.tokens";
  const std::vector<int64_t> documents = {0, 7, 8, 50, 98};
  const std::string tokenizer(32, 'a');
  for (const int64_t count : {99, 100, 101}) {  // whatever stands between the tokens and the table
    write_shard(path, some_tokens(count, 256), 256, documents, tokenizer);
    const TokenShard shard(path);
    shard.verify();
    EXPECT_EQ(shard.info().num_documents, 5);
    EXPECT_EQ(shard.info().tokenizer, tokenizer);
    EXPECT_EQ(read_all(shard), some_tokens(count, 256));
    for (int64_t first = 0; first < 99; ++first) {
      for (int64_t size = 1; first + size <= 99; size += 7) {
        std::vector<int64_t> expected, found;
        for (int64_t begin : documents)
          if (begin >= first && begin < first + size) expected.push_back(1000 + begin);
        shard.documents(first, size, 1000, found);
        EXPECT_EQ(found, expected);
      }
    }
  }
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 8);
  EXPECT_NE(message_of<DataError>([&] { TokenShard{path}; }).find("truncated"), std::string::npos);
}

TEST(TokenShard, NoticesADamagedTableOfDocuments) {
  const TemporaryDirectory scratch;
  const auto path = scratch.path() / "a.tokens";
  write_shard(path, some_tokens(100, 256), 256, std::vector<int64_t>{0, 10, 20});
  flip_byte(path, 128 + 200 + 8);
  const TokenShard shard(path);
  EXPECT_THROW(shard.verify(), DataError);
  std::vector<int64_t> found;
  EXPECT_THROW(shard.documents(0, 100, 0, found), DataError);
}

// Version 1 has neither documents nor a tokenizer in its header.
TEST(TokenShard, ReadsTheVersionBefore) {
  const TemporaryDirectory scratch;
  const auto path = scratch.path() / "a.tokens";
  write_shard(path, some_tokens(100, 256), 256);
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary).seekp(8).put(1);
  const TokenShard shard(path);
  EXPECT_EQ(read_all(shard), some_tokens(100, 256));
  EXPECT_EQ(shard.info().num_documents, 0);
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
