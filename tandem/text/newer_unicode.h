// Debian's PCRE2 knows the characters of Unicode 14, Hugging Face's tokenizers those of Unicode 16.
#pragma once

#include <string>
#include <string_view>

namespace tandem {

// The same regular expression with the newer characters named one by one, and \s for exactly what Unicode
// calls white space.
std::string with_newer_unicode(std::string_view expression);

}  // namespace tandem
