#include "tandem/text/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "tandem/base/error.h"
#include "tandem/base/utf8.h"
#include "tandem/text/characters.h"
#include "tandem/text/newer_unicode.h"

namespace tandem {

struct Pattern::Compiled {
  explicit Compiled(pcre2_code* made) : code(made) {}
  ~Compiled() { pcre2_code_free(code); }
  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;
  pcre2_code* const code;
  bool jit = false;
};

namespace {

// What matching needs beside the expression; one for each thread.
class MatchData {
 public:
  static pcre2_match_data* of_this_thread() {
    thread_local const MatchData kOwn;
    return kOwn.data_;
  }

 private:
  MatchData() : data_(pcre2_match_data_create(16, nullptr)) {}
  ~MatchData() { pcre2_match_data_free(data_); }
  pcre2_match_data* data_;
};

}  // namespace

Pattern Pattern::regex(const std::string& expression, const std::string& origin) {
  int error = 0;
  PCRE2_SIZE at = 0;
  const std::string newer = with_newer_unicode(expression);
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(newer.data()), newer.size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &at, nullptr);
  if (!code) {
    PCRE2_UCHAR text[128];
    pcre2_get_error_message(error, text, sizeof(text));
    throw DataError("{}: '{}' is no regular expression that is understood here: {}", origin,
                    printable(expression), reinterpret_cast<const char*>(text));
  }
  auto compiled = std::make_shared<Compiled>(code);
  compiled->jit = pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0;
  Pattern pattern;
  pattern.compiled_ = std::move(compiled);
  pattern.words_ = word_pattern(expression);
  return pattern;
}

Pattern Pattern::literal(std::string text) {
  TANDEM_CHECK(!text.empty());
  Pattern pattern;
  pattern.literal_ = std::move(text);
  return pattern;
}

void Pattern::for_each_match(std::string_view text, const Found& found) const {
  if (!compiled_) {
    for (size_t at = 0; (at = text.find(literal_, at)) != std::string_view::npos; at += literal_.size())
      found(at, at + literal_.size());
    return;
  }
  pcre2_match_data* const data = MatchData::of_this_thread();
  const PCRE2_SIZE* const ends = pcre2_get_ovector_pointer(data);
  const auto* const subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  for (size_t at = 0; at < text.size();) {
    const int count =
        compiled_->jit
            ? pcre2_jit_match(compiled_->code, subject, text.size(), at, PCRE2_NO_UTF_CHECK, data, nullptr)
            : pcre2_match(compiled_->code, subject, text.size(), at, PCRE2_NO_UTF_CHECK, data, nullptr);
    if (count == PCRE2_ERROR_NOMATCH) return;
    if (count < 0)
      throw DataError("a tokenizer's expression needs too much memory or time for its text (error {})",
                      count);
    const size_t begin = ends[0], end = ends[1];
    if (end > begin) found(begin, end);
    at = end > begin ? end : end + (end < text.size() ? character_bytes(text[end]) : 1);
  }
}

void Pattern::for_each_piece(std::string_view text, const Piece& piece) const {
  size_t done = 0;
  for_each_match(text, [&](size_t begin, size_t end) {
    if (begin > done) piece(text.substr(done, begin - done), false);
    piece(text.substr(begin, end - begin), true);
    done = end;
  });
  if (done < text.size()) piece(text.substr(done), false);
}

std::string Pattern::replace_all(std::string_view text, std::string_view with) const {
  std::string replaced;
  for_each_piece(text, [&](std::string_view piece, bool is_match) { replaced += is_match ? with : piece; });
  return replaced;
}

}  // namespace tandem
