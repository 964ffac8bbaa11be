// `when` of a step: comparisons of numbers with metrics of finished steps, joined by `and` and `or`
// ("evaluate.eval_loss < 2.1 and evaluate.eval_loss < before.eval_loss"); `and` binds closer.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::pipeline {

struct Operand {
  std::string step, metric;  // of a step, or
  double number = 0;         // a number, where `step` is empty
};

struct Comparison {
  Operand left, right;
  std::string op;          // < <= > >= == !=
  bool begins_or = false;  // what came before it is the other side of an `or`
};

struct Condition {
  std::string text;
  std::vector<Comparison> comparisons;  // none: always true

  std::vector<std::string> steps() const;  // that it names, each once
  bool holds(const std::function<double(const Operand&)>& value) const;
};

// Throws ConfigError that starts with `place`.
Condition parse_condition(const std::string& text, const std::string& place);

}  // namespace tandem::pipeline
