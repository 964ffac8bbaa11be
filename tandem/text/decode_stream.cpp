#include "tandem/text/decode_stream.h"

#include <algorithm>

#include "tandem/text/characters.h"

namespace tandem {
namespace {

constexpr size_t kContext = 8;    // tokens before it may change how a token is decoded
constexpr size_t kMostHeld = 32;  // more than a character has: these bytes will never be one

// Whether bytes are missing at the end: as the tokenizer gives them, or as what it puts in their place.
bool is_incomplete(std::string_view text) {
  if (text.ends_with(kReplacement)) return true;
  size_t back = 1;
  while (back < 4 && back < text.size() && (static_cast<uint8_t>(text[text.size() - back]) & 0xc0) == 0x80)
    ++back;
  if (text.empty()) return true;
  const char first = text[text.size() - back];
  return static_cast<uint8_t>(first) >= 0xc0 && character_bytes(first) > back;
}

}  // namespace

DecodeStream::DecodeStream(const Tokenizer& tokenizer, std::span<const int32_t> before)
    : tokenizer_(tokenizer) {
  const auto context = before.last(std::min(before.size(), kContext));
  tokens_.assign(context.begin(), context.end());
  given_ = tokens_.size();
}

std::string DecodeStream::add(int32_t token) {
  tokens_.push_back(token);
  return next(tokens_.size() - given_ < kMostHeld);
}

std::string DecodeStream::finish() { return next(false); }

// Decoded with the tokens before them, and without what those give alone.
std::string DecodeStream::next(bool hold) {
  const std::string before = tokenizer_.decode(std::span(tokens_).first(given_));
  std::string all = tokenizer_.decode(tokens_);
  if (hold && is_incomplete(all)) return "";
  const auto differ = std::mismatch(before.begin(), before.end(), all.begin(), all.end());
  auto begin = static_cast<size_t>(differ.second - all.begin());
  while (begin > 0 && begin < all.size() && (static_cast<uint8_t>(all[begin]) & 0xc0) == 0x80) --begin;
  if (tokens_.size() > kContext) tokens_.erase(tokens_.begin(), tokens_.end() - kContext);
  given_ = tokens_.size();
  return all.substr(begin);
}

}  // namespace tandem
