// Tokens that are looked for in the text before anything else is done to it, such as <|endoftext|>.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

struct AddedToken {
  int32_t id = 0;
  std::string text;
  bool single_word = false;                      // only where no letter or digit touches it
  bool left_strip = false, right_strip = false;  // takes the white space beside it
  bool normalized = false;                       // looked for after normalisation, itself normalised
  bool special = false;                          // left out of decoded text on request
};

// Finds tokens in a text: the leftmost, and of those that begin there the longest.
class TokenFinder {
 public:
  TokenFinder() { nodes_.emplace_back(); }
  void add(const AddedToken& token, std::string_view pattern);
  bool empty() const { return nodes_.size() == 1; }

  // Calls `part` with each part of the text in order: a token, or a text in which there is none (null).
  using Part = std::function<void(std::string_view text, const AddedToken* token)>;
  void split(std::string_view text, const Part& part) const;

 private:
  struct Node {
    std::vector<std::pair<char, int32_t>> next;  // sorted
    int32_t token = -1;
  };
  int32_t child(int32_t node, char byte) const;
  const AddedToken* longest(std::string_view text, size_t& length) const;

  std::vector<Node> nodes_;
  std::array<int32_t, 256> first_{};  // the root's, by byte; 0 where there is none
  std::vector<AddedToken> tokens_;
};

}  // namespace tandem
