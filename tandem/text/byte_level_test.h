// A tokenizer.json for tests: every byte, and "hello" as one token, within the words of GPT-2.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tandem/text/byte_alphabet.h"

namespace tandem {

inline constexpr int32_t kHello = 259, kEndOfText = 260;
inline constexpr int64_t kByteLevelVocab = 261;

inline std::string byte_level_json() {
  nlohmann::json vocabulary;
  for (int byte = 0; byte < 256; ++byte)
    vocabulary[piece_of_bytes(std::string(1, static_cast<char>(byte)))] = byte;
  vocabulary["he"] = 256;
  vocabulary["ll"] = 257;
  vocabulary["hell"] = 258;
  vocabulary["hello"] = kHello;
  const nlohmann::json description = {
      {"added_tokens",
       {{{"id", kEndOfText}, {"content", "<|endoftext|>"}, {"special", true}, {"normalized", false}}}},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", {"h e", "l l", "he ll", "hell o"}}}}};
  return description.dump();
}

}  // namespace tandem
