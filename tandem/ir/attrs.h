// Attributes of a node: a few named constants, kept sorted by name so that equal sets print the same.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tandem {

using AttrValue = std::variant<int64_t, double, std::string>;

class Attrs {
 public:
  Attrs() = default;
  Attrs(std::initializer_list<std::pair<std::string, AttrValue>> items);

  void set(std::string_view name, AttrValue value);
  bool has(std::string_view name) const { return find(name) != nullptr; }
  int64_t integer(std::string_view name) const;  // a missing or mistyped attribute is a bug
  double real(std::string_view name) const;
  const std::string& text(std::string_view name) const;
  int64_t integer_or(std::string_view name, int64_t fallback) const;
  double real_or(std::string_view name, double fallback) const;
  std::string text_or(std::string_view name, std::string_view fallback) const;

  const std::vector<std::pair<std::string, AttrValue>>& items() const { return items_; }
  bool operator==(const Attrs&) const = default;

 private:
  const AttrValue* find(std::string_view name) const;
  std::vector<std::pair<std::string, AttrValue>> items_;
};

}  // namespace tandem
