#include "tandem/pipeline/condition.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <optional>

#include "tandem/base/error.h"

namespace tandem::pipeline {
namespace {

constexpr std::array<std::string_view, 6> kOperators = {"<=", ">=", "==", "!=", "<", ">"};

[[noreturn]] void refuse(const std::string& text, const std::string& place, std::string_view found) {
  throw ConfigError(
      "{}: expected comparisons such as evaluate.eval_loss < 2.1, joined by `and` or `or`, found '{}' in "
      "'{}'",
      place, found, text);
}

// Operators and what lies between blanks and operators.
std::vector<std::string> tokens_of(std::string_view text) {
  std::vector<std::string> tokens;
  bool open = false;
  while (!text.empty()) {
    const auto found = std::find_if(kOperators.begin(), kOperators.end(),
                                    [&](std::string_view op) { return text.starts_with(op); });
    if (found != kOperators.end()) {
      tokens.emplace_back(*found);
      text.remove_prefix(found->size());
      open = false;
      continue;
    }
    const bool blank = std::isspace(static_cast<unsigned char>(text.front())) != 0;
    if (!blank) {
      if (!open) tokens.emplace_back();
      tokens.back() += text.front();
    }
    open = !blank;
    text.remove_prefix(1);
  }
  return tokens;
}

std::optional<Operand> operand_of(const std::string& token) {
  Operand operand;
  const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), operand.number);
  if (error == std::errc() && end == token.data() + token.size()) return operand;
  const size_t dot = token.find('.');
  if (dot == 0 || dot == std::string::npos || dot + 1 == token.size()) return std::nullopt;
  if (std::isalpha(static_cast<unsigned char>(token[0])) == 0 && token[0] != '_') return std::nullopt;
  return Operand{token.substr(0, dot), token.substr(dot + 1), 0};
}

bool compare(double left, const std::string& op, double right) {
  if (op == "<") return left < right;
  if (op == "<=") return left <= right;
  if (op == ">") return left > right;
  if (op == ">=") return left >= right;
  return (left == right) == (op == "==");
}

}  // namespace

Condition parse_condition(const std::string& text, const std::string& place) {
  Condition condition{text, {}};
  const std::vector<std::string> tokens = tokens_of(text);
  bool begins_or = false;
  for (size_t at = 0; at < tokens.size(); at += 4) {
    if (at + 2 >= tokens.size()) refuse(text, place, tokens.back());
    const std::optional<Operand> left = operand_of(tokens[at]), right = operand_of(tokens[at + 2]);
    if (!left) refuse(text, place, tokens[at]);
    if (std::find(kOperators.begin(), kOperators.end(), tokens[at + 1]) == kOperators.end())
      refuse(text, place, tokens[at + 1]);
    if (!right) refuse(text, place, tokens[at + 2]);
    condition.comparisons.push_back({*left, *right, tokens[at + 1], begins_or});
    if (at + 3 == tokens.size()) return condition;
    const std::string& join = tokens[at + 3];
    if (join != "and" && join != "or") refuse(text, place, join);
    begins_or = join == "or";
  }
  refuse(text, place, tokens.empty() ? "nothing" : tokens.back());
}

std::vector<std::string> Condition::steps() const {
  std::vector<std::string> names;
  for (const Comparison& comparison : comparisons) {
    for (const Operand* operand : {&comparison.left, &comparison.right}) {
      const bool known = std::find(names.begin(), names.end(), operand->step) != names.end();
      if (!operand->step.empty() && !known) names.push_back(operand->step);
    }
  }
  return names;
}

bool Condition::holds(const std::function<double(const Operand&)>& value) const {
  bool all = true;  // since the last `or`
  for (const Comparison& comparison : comparisons) {
    if (comparison.begins_or) {
      if (all) return true;
      all = true;
    }
    all = all && compare(value(comparison.left), comparison.op, value(comparison.right));
  }
  return all;
}

}  // namespace tandem::pipeline
