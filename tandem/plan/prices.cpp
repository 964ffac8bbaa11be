#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/nearest.h"
#include "tandem/plan/csv.h"
#include "tandem/plan/money.h"

namespace tandem::plan {
namespace {

std::optional<double> dollars(const CsvRow& row, std::string_view name) {
  if (row.is_empty(name)) return std::nullopt;
  constexpr double kMost = 10000;
  const double value = row.number(name);
  if (!(value > 0) || value > kMost)
    throw ConfigError("{}: {}: expected dollars an hour between 0 and {}, found {}", row.where(), name, kMost,
                      row.text(name));
  return value;
}

std::string date_of(const CsvRow& row) {
  const std::string& date = row.text("date");
  bool is_date = date.size() == 10 && date[4] == '-' && date[7] == '-';
  for (size_t i : {0u, 1u, 2u, 3u, 5u, 6u, 8u, 9u})
    is_date = is_date && std::isdigit(static_cast<unsigned char>(date[i])) != 0;
  if (!is_date) throw ConfigError("{}: date: expected one such as 2026-08-22, found '{}'", row.where(), date);
  return date;
}

Price parse_price(const CsvRow& row) {
  Price price;
  price.provider = row.text("provider");
  price.instance = row.text("instance");
  price.gpu = row.text("gpu");
  if (catalogue().find_gpu(price.gpu) == nullptr) {
    std::vector<std::string_view> names;
    for (const Gpu& gpu : catalogue().gpus) names.push_back(gpu.name);
    throw ConfigError("{}: gpu: there is no '{}'; the nearest is {}", row.where(), price.gpu,
                      nearest(price.gpu, names));
  }
  const double gpus = row.number("gpus");
  if (gpus < 1 || gpus > 1024)
    throw ConfigError("{}: gpus: expected how many an instance has, found {}", row.where(), row.text("gpus"));
  price.gpus = static_cast<int>(gpus);
  price.region = row.text("region");
  price.on_demand = dollars(row, "on_demand");
  price.spot = dollars(row, "spot");
  if (!price.on_demand && !price.spot)
    throw ConfigError("{}: there is neither a price on demand nor on spot", row.where());
  price.date = date_of(row);
  price.source = row.text("source");
  price.note = row.text("note");
  return price;
}

// A number and what follows it.
double split_number(const std::string& text, const std::string& flag, std::string& rest,
                    const char* expected) {
  size_t end = 0;
  while (end < text.size() && (std::isdigit(static_cast<unsigned char>(text[end])) != 0 || text[end] == '.'))
    ++end;
  rest = text.substr(end);
  if (end == 0) throw ConfigError("{} {}: expected {}", flag, text, expected);
  const double value = parse_number(text.substr(0, end), fmt::format("{} {}", flag, text));
  if (!(value > 0)) throw ConfigError("{} {}: expected {}, above 0", flag, text, expected);
  return value;
}

struct Unit {
  std::string_view name;
  double factor;
};

double with_unit(const std::string& text, const std::string& flag, std::initializer_list<Unit> units,
                 const char* expected) {
  std::string rest;
  const double value = split_number(text, flag, rest, expected);
  for (const Unit& unit : units) {
    if (same_name(unit.name, rest)) return value * unit.factor;
  }
  throw ConfigError("{} {}: expected {}, found '{}' after the number", flag, text, expected, rest);
}

}  // namespace

std::vector<Price> read_prices(const std::string& path) {
  std::vector<Price> prices;
  if (!path.empty() && !std::filesystem::is_regular_file(path))
    throw ConfigError("--prices {}: there is no such file", path);
  const std::string text = path.empty() ? catalogue_file("prices.csv") : read_text(path);
  for (const CsvRow& row : parse_csv(text, path.empty() ? "prices.csv" : path))
    prices.push_back(parse_price(row));
  if (prices.empty()) throw ConfigError("--prices {}: there is no price in it", path);
  return prices;
}

std::vector<std::string> parse_providers(const std::string& list, const std::vector<Price>& prices) {
  std::set<std::string, std::less<>> known;
  for (const Price& price : prices) known.insert(price.provider);
  const std::vector<std::string_view> names(known.begin(), known.end());
  std::vector<std::string> chosen;
  std::string_view text = list;
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    const std::string name(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!known.contains(name))
      throw ConfigError("--providers {}: there is no '{}'; the nearest is {}; known are {}", list, name,
                        nearest(name, names), fmt::join(names, ", "));
    chosen.push_back(name);
  }
  return chosen;
}

double parse_amount(const std::string& text, const std::string& flag) {
  return with_unit(text, flag, {{"", 1}, {"k", 1e3}, {"M", 1e6}, {"B", 1e9}, {"T", 1e12}},
                   "a number of tokens such as 20B");
}
double parse_dollars(const std::string& text, const std::string& flag) {
  return with_unit(text, flag, {{"", 1}, {"USD", 1}}, "dollars such as 2000USD");
}
double parse_time(const std::string& text, const std::string& flag) {
  return with_unit(text, flag, {{"", 3600}, {"h", 3600}, {"d", 86400}, {"m", 60}, {"s", 1}},
                   "a time such as 48h");
}

}  // namespace tandem::plan
