#include "tandem/convert/rules.h"

#include "tandem/base/error.h"
#include "tandem/config/keys.h"

namespace tandem::convert {
namespace {

// The row of the key itself, or of the innermost table around it.
const Rule* find_rule(std::span<const Rule> rules, std::string_view key) {
  while (true) {
    for (const Rule& rule : rules) {
      if (rule.key == key) return &rule;
    }
    const size_t dot = key.rfind('.');
    if (dot == std::string_view::npos) return nullptr;
    key = key.substr(0, dot);
  }
}

bool has_rows_below(std::span<const Rule> rules, std::string_view key) {
  for (const Rule& rule : rules) {
    if (rule.key.size() > key.size() && rule.key.starts_with(key) && rule.key[key.size()] == '.') return true;
  }
  return false;
}

void take_same(const Source& source, const Rule& rule, const Value& value, Draft& draft) {
  if (is_auto(value)) {
    if (!draft.has(rule.ours))
      draft.lost(source.full(rule.key), value, fmt::format("another file gives it; set {}", rule.ours));
    return;
  }
  if (value.is_structured())
    throw ConfigError("{}: {}: expected one value, found {}", source.file(), source.full(rule.key),
                      text_of(value));
  const std::optional<Value> number = as_number(value);
  draft.set(rule.ours, number ? *number : value);
}

void take_all(const Source& source, const Value& table, const std::string& at, std::span<const Rule> rules,
              Draft& draft) {
  for (const auto& [name, value] : table.items()) {
    const std::string key = at.empty() ? name : at + "." + name;
    const Rule* rule = find_rule(rules, key);
    const bool is_own = rule != nullptr && rule->key == key;
    if (value.is_object() && !value.empty() && (has_rows_below(rules, key) || rule == nullptr)) {
      take_all(source, value, key, rules, draft);
      continue;
    }
    if (says_nothing(value) && !(is_own && rule->kind == RuleKind::Same)) continue;
    if (value.is_null()) continue;
    if (rule == nullptr) {
      draft.lost(source.full(key), value, "unknown here; docs/config.md has every key of ours");
    } else if (rule->kind == RuleKind::Same) {
      take_same(source, *rule, value, draft);
    } else if (rule->kind == RuleKind::Lost) {
      if (rule->unless.empty() || Value::parse(rule->unless) != value)
        draft.lost(source.full(key), value, rule->why);
    }
  }
}

}  // namespace

void apply_rules(const Source& source, std::span<const Rule> rules, Draft& draft) {
  take_all(source, source.root(), "", rules, draft);
  for (const Rule& rule : rules) {
    TANDEM_CHECK(rule.unless.empty() || Value::accept(rule.unless), "{}", rule.key);
    TANDEM_CHECK(rule.kind != RuleKind::Same || find_key(rule.ours) != nullptr, "{}", rule.key);
    if (rule.kind == RuleKind::Same && !rule.unless.empty() && !draft.has(rule.ours))
      draft.set(rule.ours, Value::parse(rule.unless));
  }
}

}  // namespace tandem::convert
