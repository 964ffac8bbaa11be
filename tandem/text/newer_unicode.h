// Debian's PCRE2 knows the characters of Unicode 14, Hugging Face's tokenizers those of Unicode 16.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tandem {

// The same regular expression with the newer characters named one by one, and \s for exactly what Unicode
// calls white space.
std::string with_newer_unicode(std::string_view expression);

// What Unicode 15, 15.1 and 16 have added to 14, by the first letters of its general category.
struct NewerCharacters {
  std::string_view category;
  uint32_t first, last;
};
std::span<const NewerCharacters> newer_characters();

}  // namespace tandem
