// What a tokenizer does to text before it cuts it.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tandem/text/pattern.h"

namespace tandem {

enum class UnicodeForm { Nfc, Nfd, Nfkc, Nfkd };
struct Prepend {
  std::string text;  // before any text that is not empty
};
struct Replace {
  Pattern pattern;
  std::string with;
};

class Normalizer {
 public:
  using Step = std::variant<UnicodeForm, Prepend, Replace>;
  void add(Step step) { steps_.push_back(std::move(step)); }
  bool empty() const { return steps_.empty(); }
  std::string apply(std::string_view text) const;
  // Whether a text that is cut before a letter that follows the end of a line gives the same in two parts:
  // so do the forms of Unicode, where neither of the two joins what is before it.
  bool keeps_letters_at_line_starts() const;

 private:
  std::vector<Step> steps_;
};

std::string in_unicode_form(std::string_view text, UnicodeForm form);

}  // namespace tandem
