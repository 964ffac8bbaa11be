#include "tandem/data/tokenizer.h"

#include "tandem/base/error.h"

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

  std::string decode(std::span<const int32_t> tokens) const override {
    std::string text;
    for (const int32_t token : tokens) {
      if (token == separator()) {
        text += '\n';
      } else if (token > 0 && token < vocab_size()) {
        text += static_cast<char>(token);
      } else {
        text += "\xef\xbf\xbd";  // U+FFFD: a model's vocabulary may be larger than the tokenizer's
      }
    }
    return text;
  }
};

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(std::string_view name) {
  if (name == "bytes") return std::make_unique<BytesTokenizer>();
  throw ConfigError("tokenizer '{}': unknown; expected bytes", name);
}

}  // namespace tandem
