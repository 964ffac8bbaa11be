#include "tandem/config/print.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "tandem/config/keys.h"

namespace tandem {
namespace {

struct SplitPath {
  std::string_view section;  // empty for a top-level key
  std::string_view name;
};

SplitPath split(std::string_view path) {
  const size_t dot = path.find('.');
  if (dot == std::string_view::npos) return {"", path};
  return {path.substr(0, dot), path.substr(dot + 1)};
}

// Text that YAML reads back as the same scalar without quotes.
bool is_plain(const std::string& text) {
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) || c == '.' || c == '_' || c == '-' || c == '/';
  };
  const bool starts_well =
      !text.empty() && (std::isalnum(static_cast<unsigned char>(text.front())) || text.front() == '/');
  return starts_well && text.back() != ':' && text != "null" && text != "Null" && text != "NULL" &&
         std::all_of(text.begin(), text.end(), [&](unsigned char c) { return plain(c) || c == ':'; });
}

// A value in YAML; JSON's quoting is valid there.
std::string value_text(const nlohmann::json& value) {
  if (value.is_string()) {
    const std::string& text = value.get_ref<const std::string&>();
    return is_plain(text) ? text : value.dump();
  }
  if (!value.is_array()) return value.dump();
  std::vector<std::string> items;
  for (const nlohmann::json& item : value) items.push_back(value_text(item));
  return fmt::format("[{}]", fmt::join(items, ", "));
}

}  // namespace

std::vector<ExplainRow> explain(const ResolvedConfig& resolved) {
  std::vector<ExplainRow> rows;
  for (const Key& key : keys()) {
    if (!applies(key, resolved.config)) continue;
    rows.push_back({std::string(key.path), value_text(key.read(resolved.config)),
                    std::string(resolved.origin(key.path)), std::string(key.doc)});
  }
  return rows;
}

nlohmann::json to_json(const Config& config) {
  nlohmann::json json = nlohmann::json::object();
  for (const Key& key : keys()) {
    if (!applies(key, config)) continue;
    const auto [section, name] = split(key.path);
    nlohmann::json& parent = section.empty() ? json : json[std::string(section)];
    parent[std::string(name)] = key.read(config);
  }
  return json;
}

std::string to_yaml(const Config& config) {
  std::string yaml;
  std::string_view open_section;
  for (const Key& key : keys()) {
    if (!applies(key, config)) continue;
    const auto [section, name] = split(key.path);
    if (section != open_section && !section.empty()) yaml += fmt::format("{}:\n", section);
    open_section = section;
    yaml += fmt::format("{}{}: {}\n", section.empty() ? "" : "  ", name, value_text(key.read(config)));
  }
  return yaml;
}

std::string keys_markdown() {
  const Config defaults;
  std::string page = "| key | default | expects | what it is |\n|---|---|---|---|\n";
  for (const Key& key : keys()) {
    page += fmt::format("| `{}` | `{}` | {} | {} |\n", key.path, value_text(key.read(defaults)), key.expects,
                        key.doc);
  }
  return page;
}

}  // namespace tandem
