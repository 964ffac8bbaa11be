#include "tandem/text/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
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

}  // namespace

std::string in_unicode_form(std::string_view text, UnicodeForm form) {
  // Plain ASCII is in every form.
  if (std::all_of(text.begin(), text.end(), [](char c) { return static_cast<signed char>(c) >= 0; }))
    return std::string(text);
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
  return std::string(reinterpret_cast<const char*>(made), static_cast<size_t>(size));
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
