#include "tandem/convert/document.h"

#include <yaml-cpp/yaml.h>

#include <toml++/toml.h>
#include <algorithm>
#include <cctype>
#include <charconv>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/json_text.h"
#include "tandem/base/utf8.h"
#include "tandem/config/yaml_shape.h"

namespace tandem::convert {
namespace {

constexpr int kMostValues = 100000;  // YAML may name a list many times, and lists of such lists

// A scalar that stands without quotes, as YAML's core schema reads it; PyYAML's yes and no as well.
Value plain_scalar(const std::string& text) {
  std::string word;
  for (const char c : text.substr(0, 8))
    word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (text.empty() || word == "~" || word == "null") return nullptr;
  if (word == "true" || word == "yes" || word == "on") return true;
  if (word == "false" || word == "no" || word == "off") return false;
  const char *begin = text.data() + (text.front() == '+' ? 1 : 0), *end = text.data() + text.size();
  int64_t whole = 0;
  if (const auto read = std::from_chars(begin, end, whole); read.ec == std::errc() && read.ptr == end)
    return whole;
  double real = 0;
  const bool is_number = std::isdigit(static_cast<unsigned char>(end[-1])) || end[-1] == '.';
  if (const auto read = std::from_chars(begin, end, real);
      is_number && read.ec == std::errc() && read.ptr == end)
    return real;
  return text;
}

Value of_yaml(const YAML::Node& node, const std::string& file, int& num_values) {
  if (++num_values > kMostValues)
    throw ConfigError("{}:{}: expected at most {} values, found more; is it another file?", file,
                      node.Mark().line + 1, kMostValues);
  if (node.IsMap()) {
    Value table = Value::object();
    for (const auto& item : node) {
      if (!item.first.IsScalar())
        throw ConfigError("{}:{}: expected a word as a key, found a list or a table", file,
                          item.first.Mark().line + 1);
      table[item.first.Scalar()] = of_yaml(item.second, file, num_values);
    }
    return table;
  }
  if (node.IsSequence()) {
    Value list = Value::array();
    for (const auto& item : node) list.push_back(of_yaml(item, file, num_values));
    return list;
  }
  if (!node.IsScalar()) return nullptr;
  return node.Tag() == "!" ? Value(node.Scalar()) : plain_scalar(node.Scalar());  // "!": in quotes
}

Value of_toml(const toml::node& node) {
  if (const toml::table* table = node.as_table()) {
    Value out = Value::object();
    for (const auto& [key, value] : *table) out[std::string(key.str())] = of_toml(value);
    return out;
  }
  if (const toml::array* array = node.as_array()) {
    Value out = Value::array();
    for (const toml::node& item : *array) out.push_back(of_toml(item));
    return out;
  }
  if (const auto* value = node.as_string()) return value->get();
  if (const auto* value = node.as_integer()) return value->get();
  if (const auto* value = node.as_floating_point()) return value->get();
  if (const auto* value = node.as_boolean()) return value->get();
  return "a date or time";  // no key that is read takes one
}

}  // namespace

Value parse_json(const std::string& text, const std::string& file) {
  check_json_depth(text, file);
  try {
    return Value::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    const size_t at = std::min(error.byte, text.size());
    const auto end = text.begin() + static_cast<std::ptrdiff_t>(at > 0 ? at - 1 : 0);
    throw ConfigError("{}:{}: not JSON: a comma, a bracket or a quote too many or too few here, or a comment",
                      file, 1 + std::count(text.begin(), end, '\n'));
  }
}

Value parse_yaml(const std::string& text, const std::string& file) {
  try {
    if (const auto fault = find_yaml_fault(text))
      throw ConfigError("{}:{}: {}", file, fault->line, fault->what);
    int num_values = 0;
    return of_yaml(YAML::Load(text), file, num_values);
  } catch (const YAML::Exception& error) {
    throw ConfigError("{}:{}: not YAML: {}", file, error.mark.line + 1, error.msg);
  }
}

Value parse_toml(const std::string& text, const std::string& file) {
  try {
    return of_toml(toml::parse(text));
  } catch (const toml::parse_error& error) {
    throw ConfigError("{}:{}: not TOML: {}", file, error.source().begin.line, error.description());
  }
}

Value read_document(const std::filesystem::path& path) {
  const std::string file = path.string();
  if (!is_there(path)) throw ConfigError("{}: no such file", file);
  if (std::filesystem::is_directory(path))
    throw ConfigError("{}: is a directory; expected a .json, .yaml or .toml file", file);
  const std::string text = read_text(path, kMaxConfigBytes);
  if (!is_utf8(text) || text.find('\0') != std::string::npos)
    throw ConfigError("{}: not a text file in UTF-8; expected JSON, YAML or TOML", file);
  const std::string ending = path.extension().string();
  Value root;
  if (ending == ".toml") {
    root = parse_toml(text, file);
  } else if (ending == ".yaml" || ending == ".yml") {
    root = parse_yaml(text, file);
  } else if (ending == ".json" || text.find_first_not_of(" \t\r\n") == text.find('{')) {
    root = parse_json(text, file);
  } else {
    throw ConfigError("{}: expected a name that ends in .json, .yaml, .yml or .toml; rename it", file);
  }
  if (!root.is_object() || root.empty())
    throw ConfigError("{}: expected a table of keys and values, found {}", file,
                      root.empty() ? "nothing" : "another thing");
  return root;
}

}  // namespace tandem::convert
