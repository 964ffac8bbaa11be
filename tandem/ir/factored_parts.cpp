#include "tandem/ir/factored_parts.h"

#include <fmt/format.h>

#include "tandem/base/error.h"
#include "tandem/ir/infer.h"

namespace tandem {

Factors factors_of(const Shape& shape) {
  const Box whole = whole_box(shape);
  return {whole.rows(), shape.rank() > 1 ? whole.cols() : 0};
}

// "first,rows,cols,number of boxes:box;box|..."
std::string print_factored(const std::vector<FactoredPart>& parts) {
  std::string text;
  for (const FactoredPart& part : parts) {
    text += fmt::format("{}{},{},{},{}:{}", text.empty() ? "" : "|", part.first, part.factors.rows,
                        part.factors.cols, part.boxes.size(), print_placed(part.boxes));
  }
  return text;
}

std::vector<FactoredPart> parse_factored(std::string_view text) {
  const std::vector<int64_t> numbers = parse_numbers(text);
  std::vector<FactoredPart> parts;
  for (size_t at = 0; at < numbers.size();) {
    TANDEM_CHECK(at + 4 <= numbers.size(), "parts '{}'", text);
    FactoredPart part{numbers[at], {numbers[at + 1], numbers[at + 2]}, {}};
    const auto end = at + 4 + 5 * static_cast<size_t>(numbers[at + 3]);
    TANDEM_CHECK(end <= numbers.size(), "parts '{}'", text);
    for (size_t i = at + 4; i < end; i += 5)
      part.boxes.push_back({numbers[i], {numbers[i + 1], numbers[i + 2], numbers[i + 3], numbers[i + 4]}});
    parts.push_back(std::move(part));
    at = end;
  }
  return parts;
}

std::string print_factors(const std::vector<Factors>& list) {
  std::string text;
  for (const Factors& factors : list)
    text += fmt::format("{}{},{}", text.empty() ? "" : ";", factors.rows, factors.cols);
  return text;
}

std::vector<Factors> parse_factors(std::string_view text) {
  const std::vector<int64_t> numbers = parse_numbers(text);
  TANDEM_CHECK(numbers.size() % 2 == 0, "factors '{}'", text);
  std::vector<Factors> list;
  for (size_t i = 0; i < numbers.size(); i += 2) list.push_back({numbers[i], numbers[i + 1]});
  return list;
}

}  // namespace tandem
