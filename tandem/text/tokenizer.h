// Text to tokens and back.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::string_view name() const = 0;
  virtual int64_t vocab_size() const = 0;
  virtual int32_t separator() const = 0;  // stands between documents; -1 where there is none
  // Appends. Text that is not UTF-8 is read as valid_text (characters.h) gives it.
  virtual void encode(std::string_view text, std::vector<int32_t>& out) const = 0;
  // With the tokens that a model of this tokenizer expects around a text, such as the one that begins it.
  virtual void encode_whole(std::string_view text, std::vector<int32_t>& out) const { encode(text, out); }
  // Any tokens at all: those that are not in the vocabulary become U+FFFD.
  virtual std::string decode(std::span<const int32_t> tokens, bool skip_special = false) const = 0;
  virtual std::string piece(int32_t token) const = 0;  // as the vocabulary writes it
};

// "bytes": a token is a byte; byte 0, which text does not contain, separates documents. Else a tokenizer.json
// of Hugging Face's, or a directory that has one. Throws ConfigError where there is neither, DataError where
// the file is no tokenizer, or one with a part that is not understood here.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name);

// Reads the text of a tokenizer.json; `origin` begins the messages of errors.
std::unique_ptr<Tokenizer> parse_tokenizer_json(std::string_view text, const std::string& origin);

}  // namespace tandem
