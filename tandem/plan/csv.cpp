#include "tandem/plan/csv.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "tandem/base/error.h"

namespace tandem::plan {
namespace {

std::vector<std::string> split_line(std::string_view line, const std::string& where) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quoted && c == '"' && i + 1 < line.size() && line[i + 1] == '"') {
      cells.back() += '"';
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      cells.emplace_back();
    } else {
      cells.back() += c;
    }
  }
  if (quoted) throw ConfigError("{}: a quote is not closed", where);
  return cells;
}

}  // namespace

double parse_number(std::string_view text, const std::string& where) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    throw ConfigError("{}: expected a number, found '{}'", where, text);
  return value;
}

const std::string& CsvRow::text(std::string_view name) const {
  const auto it = cells_.find(name);
  if (it == cells_.end()) throw ConfigError("{}: there is no column '{}'", where_, name);
  return it->second;
}

double CsvRow::number(std::string_view name) const {
  return parse_number(text(name), fmt::format("{}: {}", where_, name));
}

double CsvRow::number_or(std::string_view name, double fallback) const {
  return is_empty(name) ? fallback : number(name);
}

std::vector<CsvRow> parse_csv(std::string_view text, const std::string& source) {
  std::vector<CsvRow> rows;
  std::vector<std::string> names;
  int number = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with('#')) continue;
    const std::string where = fmt::format("{}:{}", source, number);
    std::vector<std::string> cells = split_line(line, where);
    if (names.empty()) {
      names = std::move(cells);
      continue;
    }
    if (cells.size() != names.size())
      throw ConfigError("{}: expected {} values, as the first line names, found {}", where, names.size(),
                        cells.size());
    std::map<std::string, std::string, std::less<>> row;
    for (size_t i = 0; i < names.size(); ++i) row[names[i]] = std::move(cells[i]);
    rows.emplace_back(std::move(row), where);
  }
  return rows;
}

}  // namespace tandem::plan
