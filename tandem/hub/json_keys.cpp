#include "tandem/hub/json_keys.h"

#include "tandem/base/clipped.h"
#include "tandem/base/error.h"
#include "tandem/base/utf8.h"

namespace tandem::hub {
namespace {

using nlohmann::json;

constexpr int64_t kMostInteger = int64_t{1} << 53;

bool is_integer(const json& value) {
  if (value.is_number_unsigned()) return value.get<uint64_t>() <= static_cast<uint64_t>(kMostInteger);
  return value.is_number_integer() && value.get<int64_t>() >= -kMostInteger;
}

std::string shown(const json& value) {
  const std::string text = printable(value.dump(-1, ' ', false, json::error_handler_t::replace));
  return text.size() > 80 ? text.substr(0, 77) + "..." : text;
}

bool says_nothing(const json& value) {
  if (value.is_string()) return value.get_ref<const std::string&>().empty();
  return value.is_null() || value == false || (value.is_structured() && value.empty());
}

}  // namespace

const json* JsonKeys::find(std::string_view key) {
  read_.emplace(key);
  const auto found = object_.find(std::string(key));
  return found == object_.end() ? nullptr : &*found;
}

bool JsonKeys::is_null(std::string_view key) {
  const json* value = find(key);
  return value != nullptr && value->is_null();
}

int64_t JsonKeys::integer(std::string_view key, int64_t otherwise) {
  const json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!is_integer(*value)) refuse_kind(key, "a whole number");
  return value->get<int64_t>();
}

double JsonKeys::real(std::string_view key, double otherwise) {
  const json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_number()) refuse_kind(key, "a number");
  return value->get<double>();
}

bool JsonKeys::flag(std::string_view key, bool otherwise) {
  const json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) refuse_kind(key, "true or false");
  return value->get<bool>();
}

std::string JsonKeys::text(std::string_view key, std::string_view otherwise) {
  const json* value = find(key);
  if (value == nullptr) return std::string(otherwise);
  if (!value->is_string()) refuse_kind(key, "text");
  return value->get<std::string>();
}

std::optional<int64_t> JsonKeys::integer_or_none(std::string_view key, std::optional<int64_t> otherwise) {
  if (is_null(key)) return std::nullopt;
  return find(key) == nullptr ? otherwise : integer(key, 0);
}

std::optional<double> JsonKeys::real_or_none(std::string_view key, std::optional<double> otherwise) {
  if (is_null(key)) return std::nullopt;
  return find(key) == nullptr ? otherwise : real(key, 0);
}

std::optional<std::vector<double>> JsonKeys::reals(std::string_view key) {
  const json* value = find(key);
  if (value == nullptr || value->is_null()) return std::nullopt;
  std::vector<double> list;
  if (!value->is_array()) refuse_kind(key, "a list of numbers");
  for (const json& item : *value) {
    if (!item.is_number()) refuse_kind(key, "a list of numbers");
    list.push_back(item.get<double>());
  }
  return list;
}

std::optional<std::vector<std::string>> JsonKeys::texts(std::string_view key) {
  const json* value = find(key);
  if (value == nullptr || value->is_null()) return std::nullopt;
  std::vector<std::string> list;
  if (!value->is_array()) refuse_kind(key, "a list of names");
  for (const json& item : *value) {
    if (!item.is_string()) refuse_kind(key, "a list of names");
    list.push_back(item.get<std::string>());
  }
  return list;
}

void JsonKeys::require(std::string_view key, const json& only, std::string_view why) {
  const json* value = find(key);
  if (value != nullptr && !value->is_null() && *value != only) refuse(key, why);
}

std::optional<std::string> JsonKeys::first_unread() const {
  for (const auto& [key, value] : object_.items()) {
    if (!read_.contains(key) && !says_nothing(value)) return key;
  }
  return std::nullopt;
}

void JsonKeys::refuse(std::string_view key, std::string_view why) const {
  const auto found = object_.find(std::string(key));
  throw ConfigError("{}: {} = {}: {}", origin_, printable(key),
                    found == object_.end() ? "(absent)" : shown(*found), why);
}

void JsonKeys::refuse_kind(std::string_view key, std::string_view expected) const {
  const auto found = object_.find(std::string(key));
  throw ConfigError("{}: {}: expected {}, found {}", origin_, printable(key), expected, shown(*found));
}

}  // namespace tandem::hub
