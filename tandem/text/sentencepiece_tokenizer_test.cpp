// tests/text/sentencepiece.py compares ids and texts with sentencepiece's own programs; here are the parts
// that they do not see.
#include "tandem/text/sentencepiece_tokenizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tandem/base/error.h"
#include "tandem/base/message_of_test.h"
#include "tandem/base/rng.h"
#include "tandem/base/temporary_directory_test.h"
#include "tandem/text/decode_stream.h"
#include "tandem/text/sentencepiece_model.h"

namespace tandem {
namespace {

enum Kind { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4 };

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>((value & 0x7f) | 0x80);
  return bytes + static_cast<char>(value);
}
std::string with_length(int number, const std::string& bytes) {
  return varint(static_cast<uint64_t>(number) << 3 | 2) + varint(bytes.size()) + bytes;
}
std::string whole(int number, uint64_t value) {
  return varint(static_cast<uint64_t>(number) << 3) + varint(value);
}
std::string piece(const std::string& text, float score, Kind kind) {
  std::string bits(4, '\0');
  std::memcpy(bits.data(), &score, 4);
  return with_length(1, with_length(1, text) + varint(2 << 3 | 5) + bits + whole(3, kind));
}

// A unigram model of a few words, written by hand, with what else the file may have.
std::string small_model(const std::string& normalizer = "", const std::string& more = "") {
  std::string bytes = piece("<unk>", 0, kUnknown) + piece("<s>", 0, kControl) + piece("</s>", 0, kControl);
  bytes += piece("▁the", -1, kNormal) + piece("▁cat", -2, kNormal) + piece("s", -3, kNormal);
  bytes += piece("▁", -4, kNormal) + piece("t", -5, kNormal) + piece("<mark>", 0, kUserDefined) + more;
  return bytes + with_length(2, whole(3, 1)) + with_length(3, normalizer + with_length(1, "identity"));
}

TEST(SentencepieceTokenizer, KnowsPiecesAndWhatStandsAroundAText) {
  const auto tokenizer = parse_sentencepiece(small_model(), "a.model");
  EXPECT_EQ(tokenizer->vocab_size(), 9);
  std::vector<int32_t> ids;
  tokenizer->encode_whole("the cats <mark>t", ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{1, 3, 4, 5, 6, 8, 7}));
  EXPECT_EQ(tokenizer->separator(), 2);
  EXPECT_EQ(tokenizer->piece(4), "▁cat");
  EXPECT_EQ(tokenizer->find("▁cat"), 4);
  EXPECT_EQ(tokenizer->find("▁dog"), std::nullopt);
  EXPECT_TRUE(tokenizer->after().empty());
  EXPECT_EQ(tokenizer->safe_cut("the cat", 1), 7u);
  EXPECT_TRUE(parse_sentencepiece(small_model(), "a.model", {.begin = false})->before().empty());
  EXPECT_EQ(parse_sentencepiece(small_model(), "a.model", {.end = true})->after().front(), 2);
}

TEST(SentencepieceTokenizer, WritesControlPiecesUnlessTheyAreSkipped) {
  const auto tokenizer = parse_sentencepiece(small_model(), "a.model");
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(tokenizer->decode(Ids{3, 4, 5}), "the cats");
  EXPECT_EQ(tokenizer->decode(Ids{1, 3, 4, 2, 3}), "<s> the cat</s> the");
  EXPECT_EQ(tokenizer->decode(Ids{1, 3, 4, 2, 3}, true), "the cat the");
  EXPECT_EQ(tokenizer->decode(Ids{3, -1, 4, 9, 1 << 30}), "the\uFFFD cat\uFFFD\uFFFD");
  EXPECT_EQ(tokenizer->piece(9), "\uFFFD");
  EXPECT_EQ(tokenizer->decode(Ids{}), "");
  // A stream gives what one call does.
  DecodeStream stream(*tokenizer);
  std::string text;
  for (const int32_t id : {3, 4, 5, 6, 8, 2, 3}) text += stream.add(id);
  EXPECT_EQ(text + stream.finish(), tokenizer->decode(Ids{3, 4, 5, 6, 8, 2, 3}));
}

TEST(SentencepieceTokenizer, IsFoundByNameAndSaysWhatEndsAText) {
  const TemporaryDirectory scratch;
  scratch.write("tokenizer.model", small_model());
  EXPECT_TRUE(has_tokenizer_file(scratch.path()));
  const std::string directory = scratch.path().string();
  EXPECT_EQ(tokenizer_file(directory).filename(), "tokenizer.model");
  EXPECT_EQ(make_tokenizer(directory)->digest(), tokenizer_digest(directory));
  EXPECT_EQ(make_tokenizer(directory)->before().size(), 1u);
  scratch.write("tokenizer_config.json",
                R"({"add_bos_token": false, "add_eos_token": true, "eos_token": "<mark>"})");
  const auto tokenizer = make_tokenizer(directory + "/tokenizer.model");
  EXPECT_TRUE(tokenizer->before().empty());
  EXPECT_EQ(tokenizer->after().size(), 1u);
  EXPECT_EQ(tokenizer->separator(), 8);
}

std::string refused(const std::string& bytes) {
  return message_of<DataError>([&] { parse_sentencepiece(bytes, "a.model"); });
}

TEST(SentencepieceTokenizer, RefusesWhatItsLibraryWouldNotSurvive) {
  const std::string start = "a.model: not a sentencepiece model: ";
  EXPECT_EQ(refused(""), start + "it has no pieces");
  EXPECT_EQ(refused("{\"version\": \"1.0\"}"), start + "its fields are damaged");
  EXPECT_EQ(refused(small_model().substr(0, 33)), start + "it is truncated, or something else");
  EXPECT_EQ(refused(small_model("", piece("", 0, kNormal))), start + "a piece is empty");
  EXPECT_EQ(refused(small_model("", piece(std::string("a\0b", 3), 0, kNormal))),
            start + "a piece has a byte 0");
  EXPECT_EQ(refused(small_model("", piece("x", NAN, kNormal))), start + "a piece has no finite score");
  EXPECT_TRUE(refused(small_model("", piece("t", 0, kNormal))).starts_with(start));  // twice
  EXPECT_TRUE(refused(piece("a", 0, kNormal)).starts_with(start));                   // none for the unknown
  // A map of characters: the size of a trie, the trie, and texts.
  const auto map = [](uint32_t bytes, const std::string& rest) {
    std::string blob(4, '\0');
    std::memcpy(blob.data(), &bytes, 4);
    return with_length(2, blob + rest);
  };
  const std::string damaged = start + "its map of characters is damaged";
  EXPECT_EQ(refused(small_model(with_length(2, "abc"))), damaged);
  EXPECT_EQ(refused(small_model(map(1 << 20, std::string(64, '\0')))), damaged);
  EXPECT_EQ(refused(small_model(map(1024, std::string(1024, '\x7f') + std::string("a\0", 2)))), damaged);
  EXPECT_EQ(refused(small_model(map(1024, std::string(1024, '\0') + "a"))), damaged);
}

// Every bit may be wrong: what is taken still works, and nothing ends the program.
TEST(SentencepieceTokenizer, SurvivesDamagedFiles) {
  const std::string model = small_model();
  RngCursor rng(1, hash_name("damage"));
  int taken = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string bytes = model;
    for (int flips = 1 + i % 3; flips > 0; --flips)
      bytes[rng.below(bytes.size())] = static_cast<char>(rng.below(256));
    try {
      const auto tokenizer = parse_sentencepiece(bytes, "a.model");
      std::vector<int32_t> ids;
      tokenizer->encode("the cats <mark> \xff t", ids);
      tokenizer->decode(ids);
      ++taken;
    } catch (const DataError&) {
    }
  }
  EXPECT_GT(taken, 100);
  EXPECT_LT(taken, 2900);
}

}  // namespace
}  // namespace tandem
