#include "tandem/text/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "tandem/base/error.h"

namespace tandem {
namespace {

std::string applied(const Normalizer::Step& step, std::string text) {
  if (const auto* form = std::get_if<UnicodeForm>(&step)) return in_unicode_form(text, *form);
  if (const auto* prepend = std::get_if<Prepend>(&step)) return text.empty() ? text : prepend->text + text;
  const auto& replace = std::get<Replace>(step);
  return replace.pattern.replace_all(text, replace.with);
}

// U+11A7 is where the numbers of Hangul's last letters begin, not one of them: it joins nothing. utf8proc 2.8
// takes it for one, and drops it behind a syllable; it gets to see it as the first of a text only.
constexpr std::string_view kBeforeLastLetters = "\u11a7";

void append_in_form(std::string_view text, UnicodeForm form, std::string& out) {
  for (size_t at = text.find(kBeforeLastLetters, 1); at != std::string_view::npos;
       at = text.find(kBeforeLastLetters, 1)) {
    append_in_form(text.substr(0, at), form, out);
    text.remove_prefix(at);
  }
  const bool composes = form == UnicodeForm::Nfc || form == UnicodeForm::Nfkc;
  const bool compatible = form == UnicodeForm::Nfkc || form == UnicodeForm::Nfkd;
  const auto options =
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | (composes ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                                     (compatible ? UTF8PROC_COMPAT : 0));
  utf8proc_uint8_t* made = nullptr;
  const utf8proc_ssize_t size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                             static_cast<utf8proc_ssize_t>(text.size()), &made, options);
  if (size < 0) throw DataError("text cannot be normalised: {}", utf8proc_errmsg(size));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(made, &std::free);
  out.append(reinterpret_cast<const char*>(made), static_cast<size_t>(size));
}

size_t first_beyond_ascii(std::string_view text) {
  size_t at = 0;
  uint64_t eight = 0;
  while (at + 8 <= text.size() &&
         (std::memcpy(&eight, text.data() + at, 8), (eight & 0x8080808080808080ull) == 0))
    at += 8;
  while (at < text.size() && static_cast<signed char>(text[at]) >= 0) ++at;
  return at;
}

}  // namespace

// ASCII is in every form, and nothing joins it to what is before it. So a text may be cut before any ASCII
// character, and only those others count that are none, with the one before them.
std::string in_unicode_form(std::string_view text, UnicodeForm form) {
  const auto is_ascii = [](char c) { return static_cast<signed char>(c) >= 0; };
  std::string made;
  made.reserve(text.size());
  while (!text.empty()) {
    const size_t first = first_beyond_ascii(text);
    if (first == text.size()) return made.append(text);
    const size_t begin = first == 0 ? 0 : first - 1;
    const auto end = static_cast<size_t>(
        std::find_if(text.begin() + static_cast<std::ptrdiff_t>(first), text.end(), is_ascii) - text.begin());
    made.append(text.substr(0, begin));
    append_in_form(text.substr(begin, end - begin), form, made);
    text.remove_prefix(end);
  }
  return made;
}

bool Normalizer::keeps_letters_at_line_starts() const {
  return std::all_of(steps_.begin(), steps_.end(),
                     [](const Step& step) { return std::holds_alternative<UnicodeForm>(step); });
}

std::string Normalizer::apply(std::string_view text) const {
  std::string normalized(text);
  for (const Step& step : steps_) normalized = applied(step, std::move(normalized));
  return normalized;
}

}  // namespace tandem
