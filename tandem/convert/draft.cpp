#include "tandem/convert/draft.h"

#include <fmt/ranges.h>

#include "tandem/base/error.h"
#include "tandem/config/keys.h"
#include "tandem/convert/source.h"

namespace tandem::convert {
namespace {

// JSON's quoting is valid in YAML; words need none.
std::string in_yaml(const Value& value) {
  if (value.is_array()) {
    std::vector<std::string> items;
    for (const Value& item : value) items.push_back(in_yaml(item));
    return fmt::format("[{}]", fmt::join(items, ", "));
  }
  if (!value.is_string()) return value.dump();
  const std::string& text = value.get_ref<const std::string&>();
  const auto is_letter = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-'; };
  const bool plain = !text.empty() && std::isalpha(static_cast<unsigned char>(text.front())) &&
                     std::all_of(text.begin(), text.end(), is_letter) && text != "null";
  return plain ? text : value.dump();
}

struct SplitPath {
  std::string_view section;  // empty for a key at the top
  std::string_view name;
};

SplitPath split(std::string_view path) {
  const size_t dot = path.find('.');
  if (dot == std::string_view::npos) return {"", path};
  return {path.substr(0, dot), path.substr(dot + 1)};
}

}  // namespace

std::string to_string(const Finding& finding) {
  switch (finding.kind) {
    case FindingKind::Lost:
      return fmt::format("no counterpart: {} = {}: {}", finding.key, finding.value, finding.text);
    case FindingKind::Assumed:
      return fmt::format("assumed: {} = {}: {}", finding.key, finding.value, finding.text);
    case FindingKind::ToDo: break;
  }
  return fmt::format("to do: {}: {}", finding.key, finding.text);
}

const Value* Draft::get(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

void Draft::set(std::string_view key, Value value) {
  TANDEM_CHECK(find_key(key) != nullptr, "{}", key);
  values_.insert_or_assign(std::string(key), std::move(value));
}

void Draft::erase(std::string_view key) {
  if (const auto found = values_.find(key); found != values_.end()) values_.erase(found);
}

void Draft::hint(std::string_view key, std::string value, std::string why) {
  TANDEM_CHECK(find_key(key) != nullptr, "{}", key);
  hints_.insert_or_assign(std::string(key), std::move(value));
  findings_.push_back({FindingKind::ToDo, std::string(key), "", std::move(why)});
}

void Draft::lost(std::string key, const Value& value, std::string_view why) {
  findings_.push_back({FindingKind::Lost, std::move(key), text_of(value), std::string(why)});
}

void Draft::assumed(std::string_view key, const Value& value, std::string_view why) {
  set(key, value);
  findings_.push_back({FindingKind::Assumed, std::string(key), text_of(value), std::string(why)});
}

std::string Draft::yaml() const {
  std::string text;
  std::string_view open_section;
  for (const Key& key : keys()) {
    const auto value = values_.find(key.path);
    const auto hint = hints_.find(key.path);
    if (value == values_.end() && hint == hints_.end()) continue;
    const SplitPath path = split(key.path);
    const auto is_beside = [&](const auto& other) { return split(other.first).section == path.section; };
    if (std::none_of(values_.begin(), values_.end(), is_beside)) {
      text += fmt::format("# {}: {{{}: {}}}\n", path.section, path.name, hint->second);
      continue;
    }
    if (path.section != open_section && !path.section.empty()) text += fmt::format("{}:\n", path.section);
    open_section = path.section;
    text += fmt::format("{}{}{}: {}\n", path.section.empty() ? "" : "  ", value == values_.end() ? "# " : "",
                        path.name, value == values_.end() ? hint->second : in_yaml(value->second));
  }
  return text;
}

}  // namespace tandem::convert
