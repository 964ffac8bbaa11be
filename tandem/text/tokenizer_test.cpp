#include "tandem/text/tokenizer.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"

namespace tandem {
namespace {

TEST(BytesTokenizer, GivesBackWhatItEncoded) {
  const auto tokenizer = make_tokenizer("bytes");
  const std::string text = "Tom \xc3\xa9t\xc3\xa9\n\xff";
  std::vector<int32_t> tokens = {65};
  tokenizer->encode(text, tokens);
  ASSERT_EQ(tokens.size(), text.size() + 1);
  for (const int32_t token : tokens) EXPECT_TRUE(token >= 0 && token < tokenizer->vocab_size());
  EXPECT_EQ(tokenizer->decode(tokens), "A" + text);
}

TEST(BytesTokenizer, DecodesTokensItNeverMade) {
  const std::vector<int32_t> tokens = {72, 300, -1, 105};
  EXPECT_EQ(make_tokenizer("bytes")->decode(tokens), "H\xef\xbf\xbd\xef\xbf\xbdi");
}

TEST(BytesTokenizer, DecodesTheSeparatorAsANewLine) {
  const auto tokenizer = make_tokenizer("bytes");
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{97, tokenizer->separator(), 98}), "a\nb");
}

TEST(Tokenizer, RefusesUnknownNames) {
  try {
    make_tokenizer("byte");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "tokenizer 'byte': no such file; expected bytes, a tokenizer.json, a sentencepiece .model "
                 "or a directory with one");
  }
}

}  // namespace
}  // namespace tandem
