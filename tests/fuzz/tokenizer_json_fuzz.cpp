// Any text as a tokenizer.json: refused with one line, or a tokenizer that takes any text and any tokens.
// What it encodes are tokens of its vocabulary.
#include <algorithm>
#include <cstdlib>

#include "tandem/base/error.h"
#include "tandem/text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  constexpr size_t kLittleText = 256;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const std::unique_ptr<Tokenizer> tokenizer = parse_tokenizer_json(text, "fuzz");
    std::vector<int32_t> tokens(tokenizer->before().begin(), tokenizer->before().end());
    tokens.insert(tokens.end(), tokenizer->after().begin(), tokenizer->after().end());
    tokenizer->encode(text.substr(0, kLittleText), tokens);
    tokenizer->encode("The caf\u00e9 cost 12\u20ac:\n\t don't \U0001f600 <s>\xff", tokens);
    for (int32_t token : tokens) {
      if (token < 0 || token >= tokenizer->vocab_size()) std::abort();
      tokenizer->piece(token);
    }
    tokenizer->decode(tokens, /*skip_special=*/true);
    tokenizer->decode(tokens, /*skip_special=*/false);
    tokenizer->decode(std::vector<int32_t>{-1, 0, 1 << 30}, /*skip_special=*/false);
    if (tokenizer->safe_cut(text, size / 2) > size) std::abort();
  } catch (const DataError& error) {
    if (std::string_view(error.what()).find('\n') != std::string_view::npos) std::abort();
  }
  return 0;
}
