// Text to tokens and back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
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
  virtual int32_t separator() const = 0;                  // stands between documents; -1 where there is none
  virtual std::string_view digest() const { return {}; }  // of the file that describes it; none of bytes
  // Appends. Text that is not UTF-8 is read as valid_text (characters.h) gives it, or as the tokenizer's own
  // library reads it.
  virtual void encode(std::string_view text, std::vector<int32_t>& out) const = 0;
  // The tokens that a model of this tokenizer expects before and after a text, such as the one that begins
  // it.
  virtual std::span<const int32_t> before() const { return {}; }
  virtual std::span<const int32_t> after() const { return {}; }
  void encode_whole(std::string_view text, std::vector<int32_t>& out) const;
  // The first place from `from` on where valid text may be cut: encoding both parts gives what encoding the
  // whole does. The text's end where there is none.
  virtual size_t safe_cut(std::string_view text, size_t from) const = 0;
  // Any tokens at all: those that are not in the vocabulary become U+FFFD.
  virtual std::string decode(std::span<const int32_t> tokens, bool skip_special = false) const = 0;
  virtual std::string piece(int32_t token) const = 0;  // as the vocabulary writes it
  virtual std::optional<int32_t> find(std::string_view piece) const = 0;
  virtual void set_separator(int32_t token) = 0;
};

inline constexpr std::string_view kBytes = "bytes";

// "bytes": a token is a byte; byte 0, which text does not contain, separates documents. Else a tokenizer.json
// of Hugging Face's, a .model file of sentencepiece's, or a directory that has one of them; what separates
// documents is what the files beside it say (end_of_text.h). Throws ConfigError where there is neither,
// DataError where the file is no tokenizer, or one with a part that is not understood here.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name);

// The file that `name` means: itself, or the tokenizer.json or tokenizer.model in it. Throws ConfigError
// where there is none.
std::filesystem::path tokenizer_file(const std::string& name);
bool has_tokenizer_file(const std::filesystem::path& directory);
bool is_sentencepiece_file(const std::filesystem::path& file);  // by its name
std::string tokenizer_digest(const std::string& name);  // as Tokenizer::digest, without reading all of it

// Reads the text of a tokenizer.json; `origin` begins the messages of errors.
std::unique_ptr<Tokenizer> parse_tokenizer_json(std::string_view text, const std::string& origin);

}  // namespace tandem
