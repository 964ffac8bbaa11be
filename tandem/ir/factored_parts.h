// Parameters whose mean squares are kept by rows and columns (optimizers/adafactor.h): how many numbers that
// is, and where the elements of a piece of one belong. The attribute `parts` of ops that take such pieces.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tandem/ir/placed_boxes.h"

namespace tandem {

// The shape of a parameter to them: [first dim, product of the others], or a vector, which has no columns.
struct Factors {
  int64_t rows = 0;
  int64_t cols = 0;

  bool is_vector() const { return cols == 0; }
  int64_t size() const { return rows + cols; }  // of the state: the rows', then the columns'
  bool operator==(const Factors&) const = default;
};
Factors factors_of(const Shape& shape);

struct FactoredPart {
  int64_t first = 0;  // where the parameter's numbers begin in a list of those of many
  Factors factors;
  std::vector<PlacedBox> boxes;  // what the piece has of the parameter
  bool operator==(const FactoredPart&) const = default;
};
std::string print_factored(const std::vector<FactoredPart>& parts);
std::vector<FactoredPart> parse_factored(std::string_view text);

std::string print_factors(const std::vector<Factors>& list);  // "64,16;16,0"
std::vector<Factors> parse_factors(std::string_view text);

}  // namespace tandem
