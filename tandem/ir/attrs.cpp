#include "tandem/ir/attrs.h"

#include <algorithm>

#include "tandem/base/error.h"

namespace tandem {

Attrs::Attrs(std::initializer_list<std::pair<std::string, AttrValue>> items) {
  for (const auto& [name, value] : items) set(name, value);
}

void Attrs::set(std::string_view name, AttrValue value) {
  auto it = std::lower_bound(items_.begin(), items_.end(), name,
                             [](const auto& item, std::string_view key) { return item.first < key; });
  if (it != items_.end() && it->first == name) {
    it->second = std::move(value);
  } else {
    items_.emplace(it, std::string(name), std::move(value));
  }
}

const AttrValue* Attrs::find(std::string_view name) const {
  for (const auto& [key, value] : items_) {
    if (key == name) return &value;
  }
  return nullptr;
}

int64_t Attrs::integer(std::string_view name) const {
  const AttrValue* value = find(name);
  TANDEM_CHECK(value != nullptr && std::holds_alternative<int64_t>(*value), "attribute {}", name);
  return std::get<int64_t>(*value);
}

double Attrs::real(std::string_view name) const {
  const AttrValue* value = find(name);
  TANDEM_CHECK(value != nullptr, "attribute {}", name);
  if (const auto* whole = std::get_if<int64_t>(value)) return static_cast<double>(*whole);
  TANDEM_CHECK(std::holds_alternative<double>(*value), "attribute {}", name);
  return std::get<double>(*value);
}

const std::string& Attrs::text(std::string_view name) const {
  const AttrValue* value = find(name);
  TANDEM_CHECK(value != nullptr && std::holds_alternative<std::string>(*value), "attribute {}", name);
  return std::get<std::string>(*value);
}

int64_t Attrs::integer_or(std::string_view name, int64_t fallback) const {
  return has(name) ? integer(name) : fallback;
}

double Attrs::real_or(std::string_view name, double fallback) const {
  return has(name) ? real(name) : fallback;
}

std::string Attrs::text_or(std::string_view name, std::string_view fallback) const {
  return has(name) ? text(name) : std::string(fallback);
}

}  // namespace tandem
