// Values as users write them. A decode function stores into `out` and returns nothing, or leaves `out`
// alone and returns what is wrong ("expected ..., found ..."), to which the caller adds the place.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tandem/config/enum_names.h"

namespace tandem {

// What YAML, JSON and --set all come down to: a scalar (one item), a list, or nothing.
// An item of a list may be a table of names and values, or a list, which is a table without names; its text
// stands for it in messages.
struct RawValue {
  using Table = std::vector<std::pair<std::string, std::string>>;
  std::vector<std::string> items;
  bool is_list = false;
  std::vector<Table> tables = {};  // where there are any, one for each item, empty for one that is none

  void add(const Table& table);
  void add(std::string item);
};

inline constexpr double kMaxCount = 2147483647;  // of layers, steps, tokens...: products fit in 64 bits

// Which numbers a key takes. Messages leave out a max of kMaxCount unless it was passed.
struct Limits {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool above_min = false;  // min itself is out
  bool below_max = false;  // max itself is out
  bool in_bytes = false;   // takes sizes such as 2GiB
  bool in_fp32 = true;     // a real number is used as fp32, and has to be within these limits there too
};

std::optional<int64_t> parse_size(std::string_view text);  // "512MiB", "2GB", "1e9", "4096"
std::optional<Recompute> parse_recompute(std::string_view text);
std::string to_string(const Recompute& recompute);

// Text for a message, which is one line: a long one is cut short, and odd bytes are spelled.
std::string shortened(std::string_view text);
std::string in_quotes(std::string_view text);  // 'text', likewise

using Problem = std::optional<std::string>;

Problem decode(const RawValue& raw, const Limits& limits, int64_t& out);
Problem decode(const RawValue& raw, const Limits& limits, double& out);
Problem decode(const RawValue& raw, const Limits& limits, bool& out);
Problem decode(const RawValue& raw, const Limits& limits, std::string& out);
Problem decode(const RawValue& raw, const Limits& limits, std::vector<int64_t>& out);
Problem decode(const RawValue& raw, const Limits& limits, Recompute& out);
Problem decode(const RawValue& raw, const Limits& limits, SaveEvery& out);
Problem decode(const RawValue& raw, const Limits& limits, Dollars& out);
Problem decode(const RawValue& raw, const Limits& limits, HourlyPrice& out);
Problem decode(const RawValue& raw, const Limits& limits, DataSources& out);
Problem decode(const RawValue& raw, const Limits& limits, std::vector<StepValue>& out);
Problem decode(const RawValue& raw, const Limits& limits, std::vector<TrainGroup>& out);

std::string expects(const Limits& limits, int64_t);  // "a whole number of at least 1", for messages and docs
std::string expects(const Limits& limits, double);
std::string expects(const Limits& limits, bool);
std::string expects(const Limits& limits, const std::string&);
std::string expects(const Limits& limits, const std::vector<int64_t>&);
std::string expects(const Limits& limits, const Recompute&);
std::string expects(const Limits& limits, const SaveEvery&);
std::string expects(const Limits& limits, const Dollars&);
std::string expects(const Limits& limits, const HourlyPrice&);
std::string expects(const Limits& limits, const DataSources&);
std::string expects(const Limits& limits, const std::vector<StepValue>&);
std::string expects(const Limits& limits, const std::vector<TrainGroup>&);

inline nlohmann::json encode(int64_t value) { return value; }
inline nlohmann::json encode(double value) { return value; }
inline nlohmann::json encode(bool value) { return value; }
inline nlohmann::json encode(const std::string& value) { return value; }
inline nlohmann::json encode(const std::vector<int64_t>& value) { return value; }
inline nlohmann::json encode(const Recompute& value) { return to_string(value); }
inline nlohmann::json encode(const SaveEvery& value) {
  return value.automatic ? nlohmann::json("auto") : nlohmann::json(value.steps);
}
nlohmann::json encode(const Dollars& value);
nlohmann::json encode(const HourlyPrice& value);
nlohmann::json encode(const DataSources& value);
nlohmann::json encode(const std::vector<StepValue>& values);
nlohmann::json encode(const std::vector<TrainGroup>& groups);

// Enums and lists of enums, through their names.
Problem decode_name(const RawValue& raw, Names names, Aliases aliases, size_t& out);
Problem decode_names(const RawValue& raw, Names names, std::vector<size_t>& out);

template <NamedEnum E>
Problem decode(const RawValue& raw, const Limits&, E& out) {
  size_t index = 0;
  Problem problem = decode_name(raw, names_of(out), aliases_of(out), index);
  if (!problem) out = static_cast<E>(index);
  return problem;
}

template <NamedEnum E>
Problem decode(const RawValue& raw, const Limits&, std::vector<E>& out) {
  std::vector<size_t> indices;
  Problem problem = decode_names(raw, names_of(E{}), indices);
  if (problem) return problem;
  out.clear();
  for (size_t index : indices) out.push_back(static_cast<E>(index));
  return {};
}

std::string expects_name(Names names, bool list);

template <NamedEnum E>
std::string expects(const Limits&, E value) {
  return expects_name(names_of(value), false);
}
template <NamedEnum E>
std::string expects(const Limits&, const std::vector<E>&) {
  return expects_name(names_of(E{}), true);
}

template <NamedEnum E>
nlohmann::json encode(E value) {
  return name_of(value);
}
template <NamedEnum E>
nlohmann::json encode(const std::vector<E>& values) {
  nlohmann::json list = nlohmann::json::array();
  for (E value : values) list.push_back(name_of(value));
  return list;
}

}  // namespace tandem
