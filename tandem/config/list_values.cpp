// Keys whose values are lists of tables or of lists.
#include <fmt/format.h>

#include <algorithm>

#include "tandem/config/values.h"

namespace tandem {
namespace {

const RawValue::Table& table_of(const RawValue& raw, size_t item) {
  static const RawValue::Table kNone;
  return raw.tables.empty() ? kNone : raw.tables[item];
}

template <typename T>
std::string not_such(const Limits& limits, const T& out, const RawValue& raw) {
  std::string found;
  for (const std::string& item : raw.items) found += (found.empty() ? "" : ", ") + item;
  if (raw.is_list) found = "the list [" + shortened(found) + "]";
  return fmt::format("expected {}, found {}", expects(limits, out),
                     raw.is_list     ? found
                     : found.empty() ? "nothing"
                                     : in_quotes(found));
}

// Of a name that is there twice, one value would be lost.
Problem given_twice(const RawValue& raw, size_t item) {
  const RawValue::Table& table = table_of(raw, item);
  for (auto entry = table.begin(); entry != table.end(); ++entry) {
    const auto same = [&](const auto& earlier) { return earlier.first == entry->first; };
    if (std::any_of(table.begin(), entry, same))
      return fmt::format("{} is given twice in {}; keep one", in_quotes(entry->first),
                         shortened(raw.items[item]));
  }
  return {};
}

Problem decode_number(const std::string& text, const Limits& limits, double& out) {
  return decode(RawValue{{text}, false}, limits, out);
}

}  // namespace

std::string expects(const Limits&, const DataSources&) {
  return "a set, or a list such as [{path: a, weight: 2}, {path: b, weight: 1}]";
}
std::string expects(const Limits& limits, const std::vector<StepValue>&) {
  return fmt::format("a list of [step, {}], such as [[100, {}], [200, {}]]",
                     limits.max > 1 ? "batch" : "fraction", limits.max > 1 ? "8" : "1",
                     limits.max > 1 ? "16" : "0.5");
}

std::string expects(const Limits&, const std::vector<TrainGroup>&) {
  return "a list such as [{match: \"embed.*\", lr: 0.1, decay: 0}, {match: \"blocks.0.*\", frozen: true}]";
}

Problem decode(const RawValue& raw, const Limits& limits, DataSources& out) {
  if (!raw.is_list && !raw.items.empty()) {
    out = raw.items.front();
    return {};
  }
  if (!raw.is_list || raw.items.empty()) return not_such(limits, out, raw);
  std::vector<DataSource> sets;
  for (size_t i = 0; i < raw.items.size(); ++i) {
    DataSource& set = sets.emplace_back();
    if (table_of(raw, i).empty()) set.path = raw.items[i];
    if (const Problem problem = given_twice(raw, i)) return problem;
    for (const auto& [name, value] : table_of(raw, i)) {
      if (name == "path") {
        set.path = value;
      } else if (name == "name") {
        set.name = value;
      } else if (name != "weight") {
        return fmt::format("expected path, weight and name, found {} in {}", in_quotes(name),
                           shortened(raw.items[i]));
      } else if (decode_number(value, {.min = 0, .above_min = true, .in_fp32 = false}, set.weight)) {
        return fmt::format("expected a weight above 0, found {}", in_quotes(value));
      }
    }
    if (set.path.empty()) return fmt::format("expected a path in {}", shortened(raw.items[i]));
  }
  out = DataSources(std::move(sets));
  return {};
}

nlohmann::json encode(const DataSources& value) {
  if (value.sets.size() == 1 && value.sets.front().name.empty()) return value.sets.front().path;
  nlohmann::json list = nlohmann::json::array();
  for (const DataSource& set : value.sets) {
    list.push_back({{"path", set.path}, {"weight", set.weight}});
    if (!set.name.empty()) list.back()["name"] = set.name;
  }
  return list;
}

Problem decode(const RawValue& raw, const Limits& limits, std::vector<StepValue>& out) {
  std::vector<StepValue> values;
  if (!raw.is_list) return not_such(limits, out, raw);
  for (size_t i = 0; i < raw.items.size(); ++i) {
    const RawValue::Table& pair = table_of(raw, i);
    if (pair.size() != 2 || !pair[0].first.empty()) return not_such(limits, out, raw);
    StepValue& value = values.emplace_back();
    if (decode(RawValue{{pair[0].second}, false}, {.min = 0, .max = kMaxCount}, value.step) ||
        decode_number(pair[1].second, limits, value.value))
      return not_such(limits, out, raw);
  }
  out = std::move(values);
  return {};
}

nlohmann::json encode(const std::vector<StepValue>& values) {
  nlohmann::json list = nlohmann::json::array();
  for (const StepValue& value : values) {
    nlohmann::json number = value.value;
    if (value.value == static_cast<double>(static_cast<int64_t>(value.value)))
      number = static_cast<int64_t>(value.value);
    list.push_back({value.step, number});
  }
  return list;
}

Problem decode(const RawValue& raw, const Limits& limits, std::vector<TrainGroup>& out) {
  std::vector<TrainGroup> groups;
  if (!raw.is_list) return not_such(limits, out, raw);
  for (size_t i = 0; i < raw.items.size(); ++i) {
    const RawValue::Table& table = table_of(raw, i);
    if (table.empty() || table[0].first.empty()) return not_such(limits, out, raw);
    if (const Problem problem = given_twice(raw, i)) return problem;
    TrainGroup& group = groups.emplace_back();
    for (const auto& [name, value] : table) {
      Problem problem;
      if (name == "match") {
        group.match = value;
      } else if (name == "lr") {
        problem = decode_number(value, limits, group.lr);
      } else if (name == "decay") {
        problem = decode_number(value, limits, group.decay);
      } else if (name == "frozen") {
        problem = decode(RawValue{{value}, false}, limits, group.frozen);
      } else {
        return fmt::format("expected match, lr, decay and frozen, found {} in {}", in_quotes(name),
                           shortened(raw.items[i]));
      }
      if (problem) return fmt::format("{}: {}", name, *problem);
    }
    if (group.match.empty())
      return fmt::format("expected match, a pattern of names, in {}", shortened(raw.items[i]));
  }
  out = std::move(groups);
  return {};
}

nlohmann::json encode(const std::vector<TrainGroup>& groups) {
  nlohmann::json list = nlohmann::json::array();
  for (const TrainGroup& group : groups)
    list.push_back(
        {{"match", group.match}, {"lr", group.lr}, {"decay", group.decay}, {"frozen", group.frozen}});
  return list;
}

}  // namespace tandem
