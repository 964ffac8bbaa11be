// From pieces of a vocabulary back to text.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tandem/text/pattern.h"

namespace tandem {

struct ReplaceInPieces {
  Pattern pattern;
  std::string with;
};
struct JoinBytes {};  // <0xE2><0x96><0x81> become their character; each U+FFFD where they are none
struct Fuse {};       // all pieces become one
struct StripPieces {
  char32_t character = ' ';
  int start = 0, stop = 0;  // at most so many at the begin and the end of each piece
};
struct ByteAlphabet {};  // pieces are written in the byte alphabet
struct UnmarkSpaces {
  std::string mark;
  bool drop_first = true;  // the one that encoding put before the text
};

class Decoder {
 public:
  using Step = std::variant<ReplaceInPieces, JoinBytes, Fuse, StripPieces, ByteAlphabet, UnmarkSpaces>;
  void add(Step step) { steps_.push_back(std::move(step)); }
  void join_with_spaces() { joins_with_spaces_ = true; }  // where the tokenizer has no decoder
  std::string apply(std::vector<std::string> pieces) const;

 private:
  std::vector<Step> steps_;
  bool joins_with_spaces_ = false;
};

}  // namespace tandem
