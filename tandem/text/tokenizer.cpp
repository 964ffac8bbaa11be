#include "tandem/text/tokenizer.h"

#include <algorithm>

#include "tandem/base/digest.h"
#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/text/characters.h"
#include "tandem/text/end_of_text.h"
#include "tandem/text/sentencepiece_model.h"
#include "tandem/text/sentencepiece_tokenizer.h"

namespace tandem {
namespace {

constexpr const char* kJsonFile = "tokenizer.json";
constexpr const char* kModelFile = "tokenizer.model";

class BytesTokenizer final : public Tokenizer {
 public:
  std::string_view name() const override { return kBytes; }
  int64_t vocab_size() const override { return 256; }
  int32_t separator() const override { return separator_; }
  void set_separator(int32_t token) override { separator_ = token; }

  void encode(std::string_view text, std::vector<int32_t>& out) const override {
    out.reserve(out.size() + text.size());
    for (const char c : text) out.push_back(static_cast<unsigned char>(c));
  }

  std::string decode(std::span<const int32_t> tokens, bool /*skip_special*/) const override {
    std::string text;
    for (const int32_t token : tokens) {
      if (token == separator()) {
        text += '\n';
      } else if (token > 0 && token < vocab_size()) {
        text += static_cast<char>(token);
      } else {
        text += kReplacement;  // a model's vocabulary may be larger than the tokenizer's
      }
    }
    return text;
  }

  size_t safe_cut(std::string_view text, size_t from) const override { return std::min(from, text.size()); }
  std::string piece(int32_t token) const override { return fmt::format("<0x{:02X}>", token); }
  std::optional<int32_t> find(std::string_view piece) const override {
    for (int32_t token = 0; token < vocab_size(); ++token)
      if (this->piece(token) == piece) return token;
    return std::nullopt;
  }

 private:
  int32_t separator_ = 0;
};

}  // namespace

void Tokenizer::encode_whole(std::string_view text, std::vector<int32_t>& out) const {
  out.insert(out.end(), before().begin(), before().end());
  encode(text, out);
  out.insert(out.end(), after().begin(), after().end());
}

bool is_sentencepiece_file(const std::filesystem::path& file) { return file.extension() == ".model"; }

bool has_tokenizer_file(const std::filesystem::path& directory) {
  return is_there(directory / kJsonFile) || is_there(directory / kModelFile);
}

std::filesystem::path tokenizer_file(const std::string& name) {
  std::filesystem::path file = name;
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored))
    file /= is_there(file / kJsonFile) || !is_there(file / kModelFile) ? kJsonFile : kModelFile;
  if (!is_there(file)) {
    throw ConfigError(
        "tokenizer '{}': {}; expected bytes, a tokenizer.json, a sentencepiece .model or a directory with "
        "one",
        name, file == name ? "no such file" : "no tokenizer.json in it");
  }
  return file;
}

std::string tokenizer_digest(const std::string& name) {
  if (name == kBytes) return "";
  const std::string text = read_text(tokenizer_file(name), kMostSentencepieceBytes);
  return digest_hex(std::as_bytes(std::span(text)));
}

namespace {

std::unique_ptr<Tokenizer> read_tokenizer(const std::filesystem::path& file) {
  if (!is_sentencepiece_file(file)) return parse_tokenizer_json(read_text(file), file.string());
  const std::filesystem::path beside = file.parent_path();
  TextEnds ends;
  ends.begin = tokenizer_flag(beside, "add_bos_token").value_or(ends.begin);
  ends.end = tokenizer_flag(beside, "add_eos_token").value_or(ends.end);
  return parse_sentencepiece(read_text(file, kMostSentencepieceBytes), file.string(), ends);
}

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name) {
  if (name == kBytes) return std::make_unique<BytesTokenizer>();
  const std::filesystem::path file = tokenizer_file(name);
  std::unique_ptr<Tokenizer> tokenizer = read_tokenizer(file);
  if (const auto end = end_of_text(file.parent_path(), *tokenizer)) tokenizer->set_separator(*end);
  return tokenizer;
}

}  // namespace tandem
