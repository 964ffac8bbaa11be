#include "tandem/ir/placed_boxes.h"

#include <fmt/format.h>

#include "tandem/base/error.h"
#include "tandem/ir/infer.h"

namespace tandem {

std::string print_placed(const std::vector<PlacedBox>& parts) {
  std::string text;
  for (const auto& [offset, box] : parts) {
    text += fmt::format("{}{}:{}:{},{}:{}", text.empty() ? "" : ";", offset, box.row_begin, box.row_end,
                        box.col_begin, box.col_end);
  }
  return text;
}

std::vector<PlacedBox> parse_placed(std::string_view text) {
  const std::vector<int64_t> numbers = parse_numbers(text);
  TANDEM_CHECK(!numbers.empty() && numbers.size() % 5 == 0, "parts '{}'", text);
  std::vector<PlacedBox> parts;
  for (size_t i = 0; i < numbers.size(); i += 5)
    parts.push_back({numbers[i], {numbers[i + 1], numbers[i + 2], numbers[i + 3], numbers[i + 4]}});
  return parts;
}

}  // namespace tandem
