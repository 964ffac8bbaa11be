// Comma-separated values: a line of names, then rows. Quotes may hold commas and doubled quotes; lines that
// begin with # are comments.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::plan {

class CsvRow {
 public:
  CsvRow(std::map<std::string, std::string, std::less<>> cells, std::string where)
      : cells_(std::move(cells)), where_(std::move(where)) {}

  const std::string& where() const { return where_; }    // "prices.csv:12"
  const std::string& text(std::string_view name) const;  // throws ConfigError where there is no such column
  bool is_empty(std::string_view name) const { return text(name).empty(); }
  double number(std::string_view name) const;  // throws ConfigError naming the place where it is none
  double number_or(std::string_view name, double fallback) const;  // where the cell is empty

 private:
  std::map<std::string, std::string, std::less<>> cells_;
  std::string where_;
};

// `source` names the text in errors.
std::vector<CsvRow> parse_csv(std::string_view text, const std::string& source);

// A number that is all of `text`; throws ConfigError that begins with `where`.
double parse_number(std::string_view text, const std::string& where);

}  // namespace tandem::plan
