#include "tandem/base/nearest.h"

#include <algorithm>
#include <string>
#include <vector>

#include "tandem/base/error.h"

namespace tandem {

int edit_distance(std::string_view a, std::string_view b) {
  // Three rolling rows of the usual table: a swap looks two rows back.
  std::vector<int> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    before_last = last;
    last = row;
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int substitution = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, substitution});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
  }
  return row[b.size()];
}

namespace {

constexpr size_t kLongestWord = 80;  // longer ones are no slip of any name

std::string folded(std::string_view text) {
  std::string out(text.substr(0, kLongestWord));
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '_') c = '-';
  }
  return out;
}

}  // namespace

int slip(std::string_view word, std::string_view name) {
  const std::string a = folded(word), b = folded(name);
  constexpr size_t kTelling = 3;  // letters that begin a name and stand for it
  const size_t dashes = std::min(a.find_first_not_of('-'), a.size());
  const bool begins = a.size() - dashes >= kTelling && b.starts_with(a);
  const int distance = edit_distance(a, b);
  return begins ? std::min(distance, 1) : distance;
}

bool is_likely(std::string_view word, std::string_view name, int slip) {
  return word.size() <= kLongestWord && slip <= static_cast<int>(std::max(word.size(), name.size()) + 1) / 3;
}

std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates) {
  TANDEM_CHECK(!candidates.empty());
  return *std::min_element(candidates.begin(), candidates.end(),
                           [&](auto a, auto b) { return slip(word, a) < slip(word, b); });
}

std::optional<std::string_view> likely(std::string_view word, std::span<const std::string_view> candidates) {
  if (candidates.empty()) return {};
  const std::string_view found = nearest(word, candidates);
  return is_likely(word, found, slip(word, found)) ? std::optional(found) : std::nullopt;
}

}  // namespace tandem
