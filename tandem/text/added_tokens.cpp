#include "tandem/text/added_tokens.h"

#include <algorithm>

#include "tandem/text/characters.h"

namespace tandem {
namespace {

size_t last_character(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xc0) == 0x80) --at;
  return at;
}

bool ends_in_word(std::string_view text) {
  if (text.empty()) return false;
  std::string_view last = text.substr(last_character(text));
  return is_word(take_character(last));
}

bool begins_with_word(std::string_view text) { return !text.empty() && is_word(take_character(text)); }

size_t white_space_at_start(std::string_view text) {
  const size_t all = text.size();
  while (!text.empty()) {
    std::string_view rest = text;
    if (!is_white_space(take_character(rest))) break;
    text = rest;
  }
  return all - text.size();
}

size_t white_space_at_end(std::string_view text) {
  const size_t all = text.size();
  while (!text.empty()) {
    const size_t at = last_character(text);
    std::string_view last = text.substr(at);
    if (!is_white_space(take_character(last))) break;
    text = text.substr(0, at);
  }
  return all - text.size();
}

}  // namespace

int32_t TokenFinder::child(int32_t node, char byte) const {
  const auto& next = nodes_[static_cast<size_t>(node)].next;
  const auto found = std::lower_bound(next.begin(), next.end(), std::pair{byte, int32_t{0}});
  return found != next.end() && found->first == byte ? found->second : 0;
}

void TokenFinder::add(const AddedToken& token, std::string_view pattern) {
  if (pattern.empty()) return;
  int32_t node = 0;
  for (char byte : pattern) {
    int32_t next = child(node, byte);
    if (next == 0) {
      next = static_cast<int32_t>(nodes_.size());
      nodes_.emplace_back();
      auto& edges = nodes_[static_cast<size_t>(node)].next;
      edges.insert(std::lower_bound(edges.begin(), edges.end(), std::pair{byte, int32_t{0}}), {byte, next});
    }
    if (node == 0) first_[static_cast<uint8_t>(byte)] = next;
    node = next;
  }
  nodes_[static_cast<size_t>(node)].token = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
}

const AddedToken* TokenFinder::longest(std::string_view text, size_t& length) const {
  const AddedToken* found = nullptr;
  int32_t node = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    node = i == 0 ? first_[static_cast<uint8_t>(text[0])] : child(node, text[i]);
    if (node == 0) break;
    if (const int32_t token = nodes_[static_cast<size_t>(node)].token; token >= 0) {
      found = &tokens_[static_cast<size_t>(token)];
      length = i + 1;
    }
  }
  return found;
}

void TokenFinder::split(std::string_view text, const Part& part) const {
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    if (first_[static_cast<uint8_t>(text[at])] == 0) {
      ++at;
      continue;
    }
    size_t length = 0;
    const AddedToken* token = longest(text.substr(at), length);
    if (!token) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + length;
    at = end;
    if (token->single_word && (ends_in_word(text.substr(0, begin)) || begins_with_word(text.substr(end))))
      continue;
    if (token->left_strip) begin = std::max(done, begin - white_space_at_end(text.substr(0, begin)));
    if (token->right_strip) end += white_space_at_start(text.substr(end));
    if (begin > done) part(text.substr(done, begin - done), nullptr);
    part(text.substr(begin, end - begin), token);
    done = end;
    at = std::max(at, end);
  }
  if (done < text.size()) part(text.substr(done), nullptr);
}

}  // namespace tandem
