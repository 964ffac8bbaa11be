#include "tandem/convert/optimizer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <vector>

#include "tandem/config/enum_names.h"
#include "tandem/convert/source.h"

namespace tandem::convert {
namespace {

// Words of a name that say how it is computed, not what.
constexpr std::string_view kHow[] = {"torch", "hf",  "fused", "apex", "xla",
                                     "npu",   "bnb", "paged", "8bit", "32bit"};

std::vector<std::string> words_of(std::string_view name) {
  std::vector<std::string> words(1);
  for (const char c : name.substr(0, 64)) {
    if (c == '_') {
      words.emplace_back();
    } else {
      words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  constexpr std::string_view kFused = "fused";
  for (std::string& word : words) {
    if (word.starts_with(kFused) && word.size() > kFused.size()) word = word.substr(kFused.size());
    if (word == "adam") word = "adamw";
  }
  return words;
}

}  // namespace

std::optional<OptimizerKind> find_optimizer(std::string_view name) {
  for (size_t i = 0; i < kNumOptimizers; ++i) {
    if (kOptimizerNames[i] == name) return static_cast<OptimizerKind>(i);
  }
  std::optional<OptimizerKind> found;
  for (const std::string& word : words_of(name)) {
    if (std::find(std::begin(kHow), std::end(kHow), word) != std::end(kHow)) continue;
    const auto at = std::find(std::begin(kOptimizerNames), std::end(kOptimizerNames), word);
    if (found || at == std::end(kOptimizerNames)) return std::nullopt;
    found = static_cast<OptimizerKind>(at - std::begin(kOptimizerNames));
  }
  return found;
}

OptimizerKind set_optimizer(std::string key, std::string_view name, Draft& draft) {
  const std::optional<OptimizerKind> found = find_optimizer(name);
  if (!found) {
    draft.lost(std::move(key), std::string(name),
               fmt::format("adamw stands in for it; train.optimizer is one of {}",
                           fmt::join(kOptimizerNames, ", ")));
  }
  const OptimizerKind optimizer = found.value_or(OptimizerKind::AdamW);
  draft.set("train.optimizer", std::string(name_of(optimizer)));
  // Of two files that give one, such as Trainer's and DeepSpeed's, the second counts.
  draft.erase("train.optimizer_state");
  if (name.find("8bit") != std::string_view::npos) draft.set("train.optimizer_state", "int8");
  for (const HyperParam& param : kHyperKeys) {
    if (own_hyper(optimizer, param.key) < 0) draft.erase(param.key);
  }
  return optimizer;
}

void set_hyper(OptimizerKind optimizer, std::string_view ours, double value, Draft& draft) {
  if (own_hyper(optimizer, ours) >= 0) draft.set(ours, *as_number(value));
}

}  // namespace tandem::convert
