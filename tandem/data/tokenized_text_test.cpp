#include "tandem/data/tokenized_text.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/base/message_of_test.h"
#include "tandem/base/temporary_directory_test.h"
#include "tandem/text/byte_level_test.h"

namespace tandem {
namespace {

std::vector<int32_t> all_of(const TokenSource& source) {
  std::vector<int32_t> tokens(static_cast<size_t>(source.num_tokens()));
  source.read(0, source.num_tokens(), tokens.data());
  return tokens;
}

TEST(TokenizedText, IsTheTextsTokens) {
  const TemporaryDirectory scratch;
  const auto tokenizer = scratch.write("tokenizer.json", byte_level_json());
  const auto text = scratch.write("a.txt", "hello\nhello hello");
  const auto source = open_tokenized(text, tokenizer.string(), std::nullopt, 2);
  EXPECT_EQ(all_of(*source), (std::vector<int32_t>{kHello, '\n', kHello, ' ', kHello}));
  EXPECT_EQ(source->vocab(), kByteLevelVocab);
}

TEST(TokenizedText, IsCutAtALineForEvaluation) {
  const TemporaryDirectory scratch;
  scratch.write("tokenizer.json", byte_level_json());
  std::string text;
  for (int i = 0; i < 100; ++i) text += "hello\n";
  const auto file = scratch.write("a.txt", text);
  const auto train = open_tokenized(file, scratch.path().string(), Split::Train, 3);
  const auto eval = open_tokenized(file, scratch.path().string(), Split::Eval, 3);
  EXPECT_EQ(train->num_tokens() + eval->num_tokens(), 200);
  EXPECT_EQ(all_of(*eval).front(), kHello);
  EXPECT_NEAR(static_cast<double>(eval->num_tokens()), 10, 2);
  EXPECT_EQ(open_tokenized(file, scratch.path().string(), Split::Eval, 90)->num_tokens(), 91);
  EXPECT_THROW(open_tokenized(file, scratch.path().string(), Split::Eval, 100), DataError);
}

TEST(TokenizedText, SaysWhatToDoWithALargeFile) {
  const TemporaryDirectory scratch;
  scratch.write("tokenizer.json", byte_level_json());
  const auto file = scratch.write("a.txt", "");
  std::filesystem::resize_file(file, static_cast<uintmax_t>(kMostTokenizedBytes) + 1);
  EXPECT_NE(message_of<DataError>([&] {
              open_tokenized(file, scratch.path().string(), std::nullopt, 3);
            }).find("do it once: tandem prepare --tokenizer"),
            std::string::npos);
}

}  // namespace
}  // namespace tandem
