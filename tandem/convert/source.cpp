#include "tandem/convert/source.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "tandem/base/error.h"
#include "tandem/config/values.h"

namespace tandem::convert {

bool says_nothing(const Value& value) {
  if (value.is_null() || value == false || value == "" || value == "no" || value == "none") return true;
  if (!value.is_object()) return value.is_array() && value.empty();
  // A table that is switched off.
  for (const auto& [key, inner] : value.items()) {
    if (key.starts_with("enable") && inner == false) return true;
  }
  return value.empty();
}

bool is_auto(const Value& value) { return value == "auto"; }

std::string text_of(const Value& value) {
  if (value.is_string()) return shortened(value.get_ref<const std::string&>());
  return shortened(value.dump(-1, ' ', true, Value::error_handler_t::replace));
}

std::optional<Value> as_number(const Value& value) {
  double real = 0;
  if (value.is_string()) {
    const std::string& text = value.get_ref<const std::string&>();
    const auto read = std::from_chars(text.data(), text.data() + text.size(), real);
    if (read.ec != std::errc() || read.ptr != text.data() + text.size()) return std::nullopt;
  } else if (value.is_number_float()) {
    real = value.get<double>();
  } else if (value.is_number()) {
    return value;
  } else {
    return std::nullopt;
  }
  if (!std::isfinite(real)) return std::nullopt;
  constexpr double kExact = 9007199254740992.0;  // whole numbers up to here are exact
  if (std::floor(real) == real && std::abs(real) < kExact) return static_cast<int64_t>(real);
  return real;
}

const Value* Source::look(std::string_view key) const {
  const Value* value = &root_;
  while (true) {
    const size_t dot = key.find('.');
    if (!value->is_object()) return nullptr;
    const auto found = value->find(std::string(key.substr(0, dot)));
    if (found == value->end()) return nullptr;
    value = &*found;
    if (dot == std::string_view::npos) return value;
    key.remove_prefix(dot + 1);
  }
}

const Value* Source::find(std::string_view key) const {
  const Value* value = look(key);
  return value == nullptr || value->is_null() || is_auto(*value) ? nullptr : value;
}

bool Source::is_left_to_others(std::string_view key) const {
  const Value* value = look(key);
  return value != nullptr && is_auto(*value);
}

std::optional<int64_t> Source::whole(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  const std::optional<Value> number = as_number(*value);
  if (!number || !number->is_number_integer())
    throw ConfigError("{}: {}: expected a whole number, found {}", file_, full(key), text_of(*value));
  return number->get<int64_t>();
}

std::optional<double> Source::number(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  const std::optional<Value> number = as_number(*value);
  if (!number) throw ConfigError("{}: {}: expected a number, found {}", file_, full(key), text_of(*value));
  return number->get<double>();
}

std::optional<bool> Source::flag(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  if (*value == "true" || *value == "True" || *value == 1) return true;
  if (*value == "false" || *value == "False" || *value == 0) return false;
  throw ConfigError("{}: {}: expected true or false, found {}", file_, full(key), text_of(*value));
}

std::optional<std::string> Source::text(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>() ? "yes" : "no";  // as YAML reads a bare no
  if (value->is_number()) return value->dump();
  const auto is_control = [](unsigned char c) { return c < 0x20; };  // the zero byte would end a path
  if (!value->is_string() || std::any_of(value->get_ref<const std::string&>().begin(),
                                         value->get_ref<const std::string&>().end(), is_control))
    throw ConfigError("{}: {}: expected a word, found {}", file_, full(key), text_of(*value));
  return value->get<std::string>();
}

std::string Source::full(std::string_view key) const {
  return at_.empty() ? std::string(key) : key.empty() ? at_ : at_ + "." + std::string(key);
}

}  // namespace tandem::convert
