#include "tandem/text/end_of_text.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/base/message_of_test.h"
#include "tandem/base/temporary_directory_test.h"

namespace tandem {
namespace {

constexpr const char* kTokenizer =
    R"({"added_tokens": [{"id": 2, "content": "</s>", "special": true}, {"id": 3, "content": "<|end|>"}],
        "model": {"vocab": {"a": 0, "b": 1}, "merges": []}})";

class EndOfText : public testing::Test {
 protected:
  void SetUp() override { scratch_.write("tokenizer.json", kTokenizer); }
  int32_t separator() const { return make_tokenizer(scratch_.path().string())->separator(); }
  TemporaryDirectory scratch_;
};

TEST_F(EndOfText, IsGuessedByItsNameWhereNoFileSaysIt) { EXPECT_EQ(separator(), 2); }

TEST_F(EndOfText, IsWhatTheFirstOfTheFilesSays) {
  scratch_.write("config.json", R"({"eos_token_id": 0})");
  EXPECT_EQ(separator(), 0);
  scratch_.write("generation_config.json", R"({"eos_token_id": [1, 2]})");
  EXPECT_EQ(separator(), 1);
  scratch_.write("tokenizer_config.json", R"({"eos_token": {"content": "<|end|>"}})");
  EXPECT_EQ(separator(), 3);
  scratch_.write("tokenizer_config.json", R"({"eos_token": "</s>"})");
  EXPECT_EQ(separator(), 2);
  scratch_.write("tokenizer_config.json", R"({"eos_token": null})");
  EXPECT_EQ(separator(), 1);
}

TEST_F(EndOfText, HasToBeInTheTokenizer) {
  scratch_.write("config.json", R"({"eos_token_id": 7})");
  EXPECT_NE(message_of<DataError>([&] {
              separator();
            }).find("config.json: eos_token_id 7 is not in the tokenizer beside it, which has 4 tokens"),
            std::string::npos);
  scratch_.write("tokenizer_config.json", R"({"eos_token": "<x>"})");
  EXPECT_NE(message_of<DataError>([&] { separator(); }).find("eos_token '<x>' is not in the tokenizer"),
            std::string::npos);
  scratch_.write("tokenizer_config.json", "{");
  EXPECT_NE(message_of<DataError>([&] { separator(); }).find("tokenizer_config.json: expected a JSON object"),
            std::string::npos);
}

}  // namespace
}  // namespace tandem
