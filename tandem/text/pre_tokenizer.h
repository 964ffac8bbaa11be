// Cuts text into the pieces that a vocabulary's merges stay within.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tandem/text/pattern.h"
#include "tandem/text/word_matcher.h"

namespace tandem {

enum class SplitBehavior { Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous };
struct SplitByPattern {
  Pattern pattern;
  SplitBehavior behavior = SplitBehavior::Isolated;
  bool invert = false;  // what the pattern does not match is what is cut by
};
struct AddPrefixSpace {};  // before a piece that does not begin with one
struct SplitDigits {
  bool individual = false;
};
struct MarkSpaces {
  std::string mark;  // in place of each space
  enum class Begin {
    Always,
    First,
    Never
  } begin = Begin::Always;  // which pieces begin with one of their own
  bool split = true;        // a piece begins at each mark
};

class PreTokenizer {
 public:
  using Step = std::variant<SplitByPattern, AddPrefixSpace, SplitDigits, MarkSpaces>;
  void add(Step step) { steps_.push_back(std::move(step)); }

  // Pieces of `text`, whose bytes are its own or `storage`'s. `is_start`: the text to be encoded begins here.
  void apply(std::string_view text, bool is_start, std::vector<std::string_view>& pieces,
             std::deque<std::string>& storage) const;

  // Where it is one of the well-known patterns alone, how to find its pieces; else null.
  NextWord next_word() const;

 private:
  std::vector<Step> steps_;
};

}  // namespace tandem
