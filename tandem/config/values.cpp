#include "tandem/config/values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

#include "tandem/base/nearest.h"
#include "tandem/base/utf8.h"
#include "tandem/config/other_names.h"

namespace tandem {
namespace {

constexpr double kExactIntegers = 9007199254740992.0;  // 2^53: up to here a double holds every integer

// The number at the start of `text`, which is shortened to what follows it.
std::optional<double> take_real(std::string_view& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !std::isfinite(value)) return {};
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

std::optional<double> parse_real(std::string_view text) {
  const std::optional<double> value = take_real(text);
  return text.empty() ? value : std::nullopt;
}

std::optional<int64_t> to_integer(double value) {
  if (std::abs(value) > kExactIntegers || std::floor(value) != value) return {};
  return static_cast<int64_t>(value);
}

std::optional<int64_t> parse_integer(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return value;
  const std::optional<double> real = parse_real(text);  // 1e6 is a whole number too
  return real ? to_integer(*real) : std::nullopt;
}

std::string describe(const RawValue& raw) {
  if (raw.is_list)
    return fmt::format("the list [{}]", shortened(fmt::format("{}", fmt::join(raw.items, ", "))));
  return raw.items.empty() ? "nothing" : in_quotes(raw.items.front());
}

std::string mismatch(const std::string& expected, const RawValue& raw) {
  return fmt::format("expected {}, found {}", expected, describe(raw));
}

const std::string* scalar(const RawValue& raw) {
  return raw.is_list || raw.items.empty() ? nullptr : &raw.items.front();
}

bool within(const Limits& limits, double value) {
  const bool low = limits.above_min ? value > limits.min : value >= limits.min;
  const bool high = limits.below_max ? value < limits.max : value <= limits.max;
  return low && high;
}

std::string range_text(const Limits& limits) {
  std::string text;
  if (std::isfinite(limits.min)) {
    text = fmt::format(" {} {}", limits.above_min ? "above" : "of at least", limits.min);
  }
  if (std::isfinite(limits.max) && limits.max != kMaxCount) {
    const std::string_view link = text.empty() ? "" : " and";
    text += fmt::format("{} {} {}", link, limits.below_max ? "below" : "at most", limits.max);
  }
  return text;
}

std::optional<size_t> index_of(Names names, std::string_view word) {
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == word) return i;
  }
  return {};
}

std::string unknown_name(Names names, std::string_view word) {
  const std::string_view other = value_for_other_name(word);
  const std::optional<std::string_view> meant = index_of(names, other) ? other : likely(word, names);
  return fmt::format("expected {}, found {}{}", expects_name(names, false), in_quotes(word),
                     meant ? fmt::format("; did you mean {}?", *meant) : "");
}

// true and false as YAML spells them; `other` are the words that people write for them elsewhere.
struct BoolNames {
  bool value;
  std::array<std::string_view, 3> names;
  std::array<std::string_view, 5> other;
};
constexpr BoolNames kBools[] = {{true, {"true", "True", "TRUE"}, {"yes", "on", "1", "y", "t"}},
                                {false, {"false", "False", "FALSE"}, {"no", "off", "0", "n", "f"}}};

std::string lower(std::string_view text) {
  std::string out(text.substr(0, 16));
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// "; use 0.001" for '0,001'.
std::string decimal_comma_hint(const std::string& text) {
  std::string with_point = text;
  const size_t comma = with_point.find(',');
  if (comma == std::string::npos) return "";
  with_point[comma] = '.';
  return parse_real(with_point) ? fmt::format("; use {}", shortened(with_point)) : "";
}

// A number, and its unit after it, which may be left out.
Problem decode_money(const RawValue& raw, const Limits& limits, std::string_view unit,
                     const std::string& expected, double& out) {
  const std::string* text = scalar(raw);
  if (!text) return mismatch(expected, raw);
  std::string_view number = *text;
  if (number.ends_with(unit)) number.remove_suffix(unit.size());
  const std::optional<double> value = parse_real(std::string(number));
  if (!value || !within(limits, *value)) return mismatch(expected, raw);
  out = *value;
  return {};
}

}  // namespace

std::string shortened(std::string_view text) {
  constexpr size_t kShown = 160;
  if (text.size() <= kShown) return printable(text);
  size_t end = kShown;  // not in the middle of a character
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return fmt::format("{}... ({} bytes)", printable(text.substr(0, end)), text.size());
}

std::string in_quotes(std::string_view text) { return fmt::format("'{}'", shortened(text)); }

std::optional<int64_t> parse_size(std::string_view text) {
  struct Unit {
    std::string_view name;
    double bytes;
  };
  static constexpr std::array<Unit, 10> kUnits = {{{"", 1},
                                                   {"B", 1},
                                                   {"kB", 1e3},
                                                   {"MB", 1e6},
                                                   {"GB", 1e9},
                                                   {"TB", 1e12},
                                                   {"KiB", 1024.0},
                                                   {"MiB", 1048576.0},
                                                   {"GiB", 1073741824.0},
                                                   {"TiB", 1099511627776.0}}};
  const std::optional<double> number = take_real(text);
  if (!number) return {};
  while (text.starts_with(' ')) text.remove_prefix(1);
  for (const Unit& unit : kUnits) {
    if (text == unit.name) return to_integer(std::round(*number * unit.bytes));
  }
  return {};
}

std::optional<Recompute> parse_recompute(std::string_view text) {
  constexpr std::string_view kEvery = "every:";
  if (text.starts_with(kEvery)) {
    const std::optional<int64_t> every = parse_integer(text.substr(kEvery.size()));
    if (!every || *every < 1) return {};
    return Recompute{RecomputeKind::Every, *every};
  }
  const std::optional<size_t> index = index_of(kRecomputeNames, text);
  if (!index || static_cast<RecomputeKind>(*index) == RecomputeKind::Every) return {};
  return Recompute{static_cast<RecomputeKind>(*index), 0};
}

std::string to_string(const Recompute& recompute) {
  if (recompute.kind == RecomputeKind::Every) return fmt::format("every:{}", recompute.every);
  return std::string(name_of(recompute.kind));
}

std::string expects(const Limits& limits, int64_t) {
  if (limits.in_bytes) return "a number of bytes, such as 512MiB or 2GB";
  return "a whole number" + range_text(limits);
}
std::string expects(const Limits& limits, double) { return "a number" + range_text(limits); }
std::string expects(const Limits&, bool) { return "true or false"; }
std::string expects(const Limits&, const std::string&) { return "text"; }
std::string expects(const Limits& limits, const std::vector<int64_t>&) {
  return fmt::format("a list of whole numbers{}, such as [2, 2, 2]", range_text(limits));
}
std::string expects(const Limits&, const Recompute&) {
  return "none, full, every:K (K at least 1), selective, all_but_attention or auto";
}
std::string expects(const Limits& limits, const SaveEvery&) {
  return expects(limits, int64_t{}) + ", or auto";
}
std::string expects(const Limits& limits, const Dollars&) {
  return fmt::format("an amount such as 500USD{}", range_text(limits));
}
std::string expects(const Limits& limits, const HourlyPrice&) {
  return fmt::format("a price such as 12.5USD/h{}", range_text(limits));
}
std::string expects_name(Names names, bool list) {
  return fmt::format("{}{}", list ? "a list of " : "one of ", fmt::join(names, ", "));
}

Problem decode(const RawValue& raw, const Limits& limits, int64_t& out) {
  const std::string* text = scalar(raw);
  std::optional<int64_t> value;
  if (text) value = limits.in_bytes ? parse_size(*text) : parse_integer(*text);
  if (!value || !within(limits, static_cast<double>(*value))) {
    const bool too_many = value && limits.max == kMaxCount && *value > kMaxCount;
    return mismatch(expects(limits, out) + (too_many ? fmt::format(" and at most {}", kMaxCount) : ""), raw);
  }
  out = *value;
  return {};
}

Problem decode(const RawValue& raw, const Limits& limits, double& out) {
  const std::string* text = scalar(raw);
  const std::optional<double> value = text ? parse_real(*text) : std::nullopt;
  if (!value || !within(limits, *value))
    return mismatch(expects(limits, out), raw) + (text ? decimal_comma_hint(*text) : "");
  const auto narrow = static_cast<float>(*value);
  if (limits.in_fp32 && (!std::isfinite(narrow) || !within(limits, narrow)))
    return mismatch(fmt::format("a finite number{} in fp32", range_text(limits)), raw);
  out = *value;
  return {};
}

Problem decode(const RawValue& raw, const Limits& limits, bool& out) {
  const std::string* text = scalar(raw);
  if (!text) return mismatch(expects(limits, out), raw);
  for (const BoolNames& known : kBools) {
    if (std::find(known.names.begin(), known.names.end(), *text) == known.names.end()) continue;
    out = known.value;
    return {};
  }
  for (const BoolNames& known : kBools) {
    if (std::find(known.other.begin(), known.other.end(), lower(*text)) != known.other.end())
      return mismatch(expects(limits, out), raw) + fmt::format("; use {}", known.names.front());
  }
  return mismatch(expects(limits, out), raw);
}

Problem decode(const RawValue& raw, const Limits& limits, std::string& out) {
  const std::string* text = scalar(raw);
  if (!text) return mismatch(expects(limits, out), raw);
  out = *text;
  return {};
}

Problem decode(const RawValue& raw, const Limits& limits, std::vector<int64_t>& out) {
  std::vector<int64_t> values;
  for (const std::string& item : raw.items) {
    const std::optional<int64_t> value = parse_integer(item);
    if (!value || !within(limits, static_cast<double>(*value))) return mismatch(expects(limits, out), raw);
    values.push_back(*value);
  }
  const bool may_be_empty = limits.min == 0;  // of layers by number there may be none; of sizes not
  if (!raw.is_list || (values.empty() && !may_be_empty)) return mismatch(expects(limits, out), raw);
  out = std::move(values);
  return {};
}

Problem decode(const RawValue& raw, const Limits& limits, Recompute& out) {
  const std::string* text = scalar(raw);
  const std::optional<Recompute> value = text ? parse_recompute(*text) : std::nullopt;
  if (!value) return mismatch(expects(limits, out), raw);
  out = *value;
  return {};
}

Problem decode(const RawValue& raw, const Limits& limits, SaveEvery& out) {
  if (const std::string* text = scalar(raw); text && *text == "auto") {
    out.steps = 0;
    out.automatic = true;
    return {};
  }
  int64_t steps = 0;
  if (decode(raw, limits, steps)) return mismatch(expects(limits, out), raw);
  out = steps;
  return {};
}

Problem decode(const RawValue& raw, const Limits& limits, Dollars& out) {
  return decode_money(raw, limits, "USD", expects(limits, out), out.usd);
}

Problem decode(const RawValue& raw, const Limits& limits, HourlyPrice& out) {
  return decode_money(raw, limits, "USD/h", expects(limits, out), out.usd);
}

nlohmann::json encode(const Dollars& value) { return nlohmann::json(value.usd).dump() + "USD"; }
nlohmann::json encode(const HourlyPrice& value) { return nlohmann::json(value.usd).dump() + "USD/h"; }

void RawValue::add(const Table& table) {
  std::string text;
  const bool is_list = !table.empty() && table.front().first.empty();
  for (const auto& [name, value] : table)
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", is_list ? "" : name + ": ", value);
  tables.resize(items.size());
  tables.push_back(table);
  items.push_back(is_list ? "[" + text + "]" : "{" + text + "}");
}

void RawValue::add(std::string item) {
  items.push_back(std::move(item));
  if (!tables.empty()) tables.emplace_back();
}

Problem decode_name(const RawValue& raw, Names names, Aliases aliases, size_t& out) {
  const std::string* text = scalar(raw);
  if (!text) return mismatch(expects_name(names, false), raw);
  std::optional<size_t> index = index_of(names, *text);
  for (const Alias& alias : aliases) {
    if (alias.name == *text) index = index_of(names, alias.ours);
  }
  if (!index) return unknown_name(names, *text);
  out = *index;
  return {};
}

Problem decode_names(const RawValue& raw, Names names, std::vector<size_t>& out) {
  if (!raw.is_list) return mismatch(expects_name(names, true), raw);
  for (const std::string& item : raw.items) {
    const std::optional<size_t> index = index_of(names, item);
    if (!index) return unknown_name(names, item);
    out.push_back(*index);
  }
  return {};
}

}  // namespace tandem
