#include "tandem/text/json_tokenizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/base/message_of_test.h"
#include "tandem/text/byte_alphabet.h"

namespace tandem {
namespace {

using nlohmann::json;

// Every byte and a few merges, in the byte alphabet.
json byte_level() {
  json vocabulary;
  for (int byte = 0; byte < 256; ++byte)
    vocabulary[piece_of_bytes(std::string(1, static_cast<char>(byte)))] = byte;
  const std::vector<std::string> merges = {"h e", "l l", "he ll", "hell o", "Ġ w"};
  int id = 256;
  for (const std::string& merge : merges) {
    std::string both = merge;
    both.erase(both.find(' '), 1);
    vocabulary[both] = id++;
  }
  return {{"added_tokens", {{{"id", 300}, {"content", "<end>"}, {"special", true}, {"normalized", false}}}},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
          {"post_processor",
           {{"type", "TemplateProcessing"},
            {"single",
             {{{"SpecialToken", {{"id", "<end>"}, {"type_id", 0}}}},
              {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
            {"special_tokens", {{"<end>", {{"ids", {300}}}}}}}},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", merges}}}};
}

std::vector<int32_t> encoded(const json& description, std::string_view text) {
  std::vector<int32_t> ids;
  parse_tokenizer_json(description.dump(), "t.json")->encode(text, ids);
  return ids;
}

TEST(JsonTokenizer, CutsJoinsAndComesBack) {
  const auto tokenizer = parse_tokenizer_json(byte_level().dump(), "t.json");
  std::vector<int32_t> ids;
  tokenizer->encode("hello world<end>hello", ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{259, 260, 'o', 'r', 'l', 'd', 300, 259}));
  EXPECT_EQ(tokenizer->decode(ids), "hello world<end>hello");
  EXPECT_EQ(tokenizer->decode(ids, /*skip_special=*/true), "hello worldhello");
  EXPECT_EQ(tokenizer->piece(260), "Ġw");
  EXPECT_EQ(tokenizer->vocab_size(), 301);
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{'a', 9999}), "a\xef\xbf\xbd");
  ids.clear();
  tokenizer->encode_whole("hello", ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{300, 259}));
}

// What a thread remembers of one tokenizer is not taken for another's that lies in the same place.
TEST(JsonTokenizer, RemembersNothingOfATokenizerThatIsGone) {
  json other = byte_level();
  other["model"]["vocab"]["hello"] = 299;
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(encoded(byte_level(), "hello"), (std::vector<int32_t>{259}));
    EXPECT_EQ(encoded(other, "hello"), (std::vector<int32_t>{299}));
  }
}

TEST(JsonTokenizer, ReadsBrokenTextAsReplacementCharacters) {
  EXPECT_EQ(encoded(byte_level(), "a\xff"), (std::vector<int32_t>{'a', 0xef, 0xbf, 0xbd}));
}

TEST(JsonTokenizer, MayBeCutWhereItSaysSo) {
  json description = byte_level();
  const std::string text = "hello\nworld<end>\nhe\n1 hell<end>o\nhell\n\nhello\nhe\u0301llo";
  const auto is_cut = [&](const json& how) {
    const auto tokenizer = parse_tokenizer_json(how.dump(), "t.json");
    bool any = false;
    for (size_t cut = tokenizer->safe_cut(text, 1); cut < text.size();
         cut = tokenizer->safe_cut(text, cut + 1)) {
      std::vector<int32_t> parts, whole;
      tokenizer->encode(text.substr(0, cut), parts);
      tokenizer->encode(text.substr(cut), parts);
      tokenizer->encode(text, whole);
      EXPECT_EQ(parts, whole) << cut;
      any = true;
    }
    return any;
  };
  EXPECT_TRUE(is_cut(description));
  description["normalizer"] = {{"type", "NFC"}};
  EXPECT_TRUE(is_cut(description));
  json other = description;
  other["normalizer"] = {{"type", "Prepend"}, {"prepend", "_"}};
  EXPECT_FALSE(is_cut(other));
  other = description;
  other["added_tokens"][0]["lstrip"] = true;
  EXPECT_FALSE(is_cut(other));
  other = description;
  other["pre_tokenizer"]["add_prefix_space"] = true;
  EXPECT_FALSE(is_cut(other));
  other = description;
  other["pre_tokenizer"] = nullptr;
  EXPECT_FALSE(is_cut(other));
}

TEST(JsonTokenizer, AddedTokensMayTakeSpaceAndWantToBeAlone) {
  json description = byte_level();
  json& token = description["added_tokens"][0];
  token["lstrip"] = token["rstrip"] = true;
  EXPECT_EQ(encoded(description, "a <end>  b"), (std::vector<int32_t>{'a', 300, 'b'}));
  token["single_word"] = true;
  token["content"] = "end";
  EXPECT_EQ(encoded(description, "ends end"), (std::vector<int32_t>{'e', 'n', 'd', 's', 300}));
}

TEST(JsonTokenizer, NormalisesBetweenAddedTokens) {
  json description = byte_level();
  description["normalizer"] = {{"type", "Sequence"},
                               {"normalizers",
                                {{{"type", "Prepend"}, {"prepend", "_"}},
                                 {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "_"}}}}};
  EXPECT_EQ(encoded(description, "a b<end>c"), (std::vector<int32_t>{'_', 'a', '_', 'b', 300, '_', 'c'}));
  description["normalizer"] = {{"type", "NFC"}};
  EXPECT_EQ(encoded(description, "e\u0301"), (std::vector<int32_t>{0xc3, 0xa9}));
}

TEST(JsonTokenizer, ARunOfBytesThatIsNoTextIsReplacedByteByByte) {
  json description = byte_level();
  description["pre_tokenizer"] = nullptr;
  description["decoder"] = {{"type", "Sequence"},
                            {"decoders",
                             {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
                              {{"type", "ByteFallback"}},
                              {{"type", "Fuse"}},
                              {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}};
  description["model"] = {{"vocab", {{"<0xC3>", 0}, {"<0xA9>", 1}, {"▁", 2}, {"a", 3}}},
                          {"merges", json::array()},
                          {"byte_fallback", true}};
  const auto tokenizer = parse_tokenizer_json(description.dump(), "t.json");
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{2, 3, 2, 0, 1}), "a é");
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{2, 3, 2, 0, 1, 0}),
            "a \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
}

TEST(JsonTokenizer, RefusesWhatItDoesNotKnowByName) {
  const auto refusal = [](std::string_view path, const json& value) {
    json description = byte_level();
    description[json::json_pointer(std::string(path))] = value;
    return message_of<DataError>([&] { parse_tokenizer_json(description.dump(), "t.json"); });
  };
  EXPECT_EQ(refusal("/normalizer", {{"type", "Nmt"}}),
            "t.json: a normalizer of type 'Nmt' is not known to this version; convert the tokenizer, or "
            "tokenize elsewhere");
  EXPECT_NE(
      refusal("/pre_tokenizer/type", "BertPreTokenizer").find("a pre_tokenizer of type 'BertPreTokenizer'"),
      std::string::npos);
  EXPECT_NE(refusal("/decoder/type", "CTC").find("a decoder of type 'CTC'"), std::string::npos);
  EXPECT_NE(refusal("/model/type", "Unigram").find("a model of type 'Unigram'"), std::string::npos);
  EXPECT_NE(refusal("/post_processor/type", "X").find("a post_processor of type 'X'"), std::string::npos);
  EXPECT_NE(refusal("/model/end_of_word_suffix", "</w>").find("end_of_word_suffix"), std::string::npos);
  EXPECT_EQ(refusal("/model/merges/0", "h"), "t.json: no tokenizer: a merge is no pair");
  EXPECT_EQ(refusal("/model/merges/0", "h hh"),
            "t.json: no tokenizer: the merge 'h' + 'hh' is not in the vocabulary");
  EXPECT_EQ(refusal("/model/vocab", json::object()), "t.json: no tokenizer: 'vocab' is missing");
  EXPECT_EQ(refusal("/added_tokens/0/id", -1), "t.json: no tokenizer: 'id' is -1");
  EXPECT_EQ(message_of<DataError>([] { parse_tokenizer_json("{", "t.json"); }),
            "t.json: no tokenizer: not valid JSON");
  EXPECT_EQ(message_of<DataError>([] { parse_tokenizer_json("[]", "t.json"); }),
            "t.json: no tokenizer: expected an object");
}

}  // namespace
}  // namespace tandem
