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
  virtual int32_t separator() const = 0;  // stands between documents
  virtual void encode(std::string_view text, std::vector<int32_t>& out) const = 0;  // appends
  virtual std::string decode(std::span<const int32_t> tokens) const = 0;            // any tokens at all
};

// "bytes": a token is a byte; byte 0, which text does not contain, separates documents.
std::unique_ptr<Tokenizer> make_tokenizer(std::string_view name);  // throws ConfigError on an unknown name

}  // namespace tandem
