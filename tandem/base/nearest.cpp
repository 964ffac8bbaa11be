#include "tandem/base/nearest.h"

#include <algorithm>
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

std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates) {
  TANDEM_CHECK(!candidates.empty());
  return *std::min_element(candidates.begin(), candidates.end(),
                           [&](auto a, auto b) { return edit_distance(word, a) < edit_distance(word, b); });
}

}  // namespace tandem
