#include "tandem/data/tokenized_text.h"

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/quantity.h"
#include "tandem/base/utf8.h"
#include "tandem/data/held_out.h"
#include "tandem/data/text_file.h"
#include "tandem/text/characters.h"
#include "tandem/text/tokenizer.h"

namespace tandem {
namespace {

class TokensInMemory final : public TokenSource {
 public:
  TokensInMemory(std::vector<int32_t> tokens, int64_t vocab) : tokens_(std::move(tokens)), vocab_(vocab) {}
  int64_t num_tokens() const override { return static_cast<int64_t>(tokens_.size()); }
  int64_t vocab() const override { return vocab_; }
  void read(int64_t first, int64_t count, int32_t* out) const override {
    TANDEM_CHECK(first >= 0 && first + count <= num_tokens());
    std::copy_n(tokens_.begin() + first, count, out);
  }

 private:
  std::vector<int32_t> tokens_;
  int64_t vocab_;
};

}  // namespace

int64_t num_replaced_in(const std::filesystem::path& file) {
  const MappedFile mapped(file);
  const std::string_view text(reinterpret_cast<const char*>(mapped.bytes().data()), mapped.bytes().size());
  int64_t num_replaced = 0;
  if (!is_utf8(text)) valid_text(text, num_replaced);
  return num_replaced;
}

std::unique_ptr<TokenSource> open_tokenized(const std::filesystem::path& file, const std::string& name,
                                            std::optional<Split> part, int64_t context) {
  const MappedFile mapped(file);
  const std::string_view text(reinterpret_cast<const char*>(mapped.bytes().data()), mapped.bytes().size());
  if (static_cast<int64_t>(text.size()) > kMostTokenizedBytes) {
    throw DataError(
        "{}: {} of text is too much to tokenize at every start (up to {}); do it once: tandem prepare "
        "--tokenizer {} --out DIR {}, and set data.train to DIR",
        file.string(), format_bytes(static_cast<int64_t>(text.size())), format_bytes(kMostTokenizedBytes),
        name, file.string());
  }
  check_text_start(file, mapped.bytes());
  const auto tokenizer = make_tokenizer(name);
  // Each part is a text of its own, so that training sees nothing of the other one.
  const size_t cut = part ? held_out_begin(text, kHeldOutFraction) : text.size();
  std::vector<int32_t> tokens;
  tokenizer->encode_whole(text.substr(0, cut), tokens);
  const auto first = static_cast<int64_t>(tokens.size());
  if (part) tokenizer->encode_whole(text.substr(cut), tokens);
  auto whole = std::make_unique<TokensInMemory>(std::move(tokens), tokenizer->vocab_size());
  if (!part) return whole;
  return part_of(file.string(), std::move(whole), first, *part, context);
}

}  // namespace tandem
