#include "tandem/text/tokenizer.h"

#include <filesystem>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/text/characters.h"

namespace tandem {
namespace {

class BytesTokenizer final : public Tokenizer {
 public:
  std::string_view name() const override { return "bytes"; }
  int64_t vocab_size() const override { return 256; }
  int32_t separator() const override { return 0; }

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

  std::string piece(int32_t token) const override { return fmt::format("<0x{:02X}>", token); }
};

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name) {
  if (name == "bytes") return std::make_unique<BytesTokenizer>();
  std::filesystem::path file = name;
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) file /= "tokenizer.json";
  if (!is_there(file)) {
    throw ConfigError("tokenizer '{}': {}; expected bytes, a tokenizer.json or a directory with one", name,
                      file == name ? "no such file" : "no tokenizer.json in it");
  }
  return parse_tokenizer_json(read_text(file), file.string());
}

}  // namespace tandem
