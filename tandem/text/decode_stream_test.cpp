#include "tandem/text/decode_stream.h"

#include <gtest/gtest.h>

#include "tandem/text/characters.h"

namespace tandem {
namespace {

std::vector<std::string> streamed(const Tokenizer& tokenizer, const std::vector<int32_t>& tokens,
                                  std::span<const int32_t> before = {}) {
  DecodeStream stream(tokenizer, before);
  std::vector<std::string> parts;
  for (int32_t token : tokens) parts.push_back(stream.add(token));
  parts.push_back(stream.finish());
  return parts;
}

std::vector<int32_t> bytes_of(std::string_view text) {
  std::vector<int32_t> tokens;
  make_tokenizer("bytes")->encode(text, tokens);
  return tokens;
}

TEST(DecodeStream, HoldsBackACharacterUntilItIsWhole) {
  const auto bytes = make_tokenizer("bytes");
  EXPECT_EQ(streamed(*bytes, bytes_of("aé😀b")),
            (std::vector<std::string>{"a", "", "é", "", "", "", "😀", "b", ""}));
}

TEST(DecodeStream, GivesTheRestAtTheEndAndWhatWillNeverBeACharacter) {
  const auto bytes = make_tokenizer("bytes");
  EXPECT_EQ(streamed(*bytes, bytes_of("a\xc3")), (std::vector<std::string>{"a", "", "\xc3"}));
  EXPECT_EQ(streamed(*bytes, bytes_of("\xc3z")), (std::vector<std::string>{"", "\xc3z", ""}));
  std::string all;
  for (const std::string& part : streamed(*bytes, std::vector<int32_t>(100, 0xc3))) all += part;
  EXPECT_EQ(all, std::string(100, '\xc3'));
}

// Spaces are marks, and the first one of a text is none.
TEST(DecodeStream, DecodesATokenAfterThoseBeforeIt) {
  const auto tokenizer = parse_tokenizer_json(
      R"({"model": {"vocab": {"▁a": 0, "▁b": 1, "<0xC3>": 2, "<0xA9>": 3}, "merges": [], "byte_fallback": true},
          "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}})",
      "t.json");
  EXPECT_EQ(streamed(*tokenizer, {0, 1, 2, 3, 0}), (std::vector<std::string>{"a", " b", "", "é", " a", ""}));
  const std::vector<int32_t> prompt = {0, 1};
  EXPECT_EQ(streamed(*tokenizer, {1}, prompt), (std::vector<std::string>{" b", ""}));
  std::string all;
  for (const std::string& part : streamed(*tokenizer, std::vector<int32_t>(40, 1))) all += part;
  std::vector<int32_t> many(40, 1);
  EXPECT_EQ(all, tokenizer->decode(many));
}

}  // namespace
}  // namespace tandem
