#include "tandem/pipeline/grid.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "tandem/base/error.h"
#include "tandem/config/values.h"

namespace tandem::pipeline {
namespace {

constexpr size_t kMostTrials = 10000;

std::vector<std::string> split_values(std::string_view text) {
  std::vector<std::string> values(1);
  int depth = 0;
  char quote = 0;
  for (char c : text) {
    if (quote != 0) {
      quote = c == quote ? 0 : quote;
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if (c == ']' || c == '}') {
      --depth;
    } else if (c == ',' && depth == 0) {
      values.emplace_back();
      continue;
    }
    values.back() += c;
  }
  return values;
}

}  // namespace

Axis parse_axis(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == 0 || equals == std::string::npos)
    throw ConfigError("--grid {}: expected KEY=A,B such as train.lr=1e-3,3e-4", shortened(text));
  Axis axis{text.substr(0, equals), split_values(std::string_view(text).substr(equals + 1))};
  for (size_t at = 0; at < axis.values.size(); ++at) {
    if (axis.values[at].empty())
      throw ConfigError("--grid {}: expected values between the commas, found nothing", shortened(text));
    const auto here = axis.values.begin() + static_cast<ptrdiff_t>(at);
    if (std::find(axis.values.begin(), here, axis.values[at]) != here)
      throw ConfigError("--grid {}: {} is there twice", shortened(text), in_quotes(axis.values[at]));
  }
  return axis;
}

std::vector<std::vector<std::string>> combinations(std::span<const Axis> axes, int64_t most, uint64_t seed) {
  size_t total = 1;
  for (size_t at = 0; at < axes.size(); ++at) {
    for (size_t other = 0; other < at; ++other) {
      if (axes[other].key == axes[at].key) throw ConfigError("--grid {}: is there twice", axes[at].key);
    }
    total *= axes[at].values.size();
    if (total > kMostTrials)
      throw ConfigError("--grid: expected at most {} combinations, found more; take values out", kMostTrials);
  }
  std::vector<size_t> chosen(total);
  std::iota(chosen.begin(), chosen.end(), size_t{0});
  if (most > 0 && static_cast<size_t>(most) < total) {
    // Written out: the standard's shuffle may differ between libraries.
    std::mt19937_64 lot(seed);
    for (size_t at = 0; at < static_cast<size_t>(most); ++at)
      std::swap(chosen[at], chosen[at + lot() % (total - at)]);
    chosen.resize(static_cast<size_t>(most));
    std::sort(chosen.begin(), chosen.end());
  }
  std::vector<std::vector<std::string>> trials;
  for (size_t index : chosen) {
    std::vector<std::string> sets(axes.size());
    for (size_t at = axes.size(); at-- > 0;) {
      sets[at] = axes[at].key + "=" + axes[at].values[index % axes[at].values.size()];
      index /= axes[at].values.size();
    }
    trials.push_back(std::move(sets));
  }
  return trials;
}

std::vector<Rung> halving_rungs(size_t trials, int64_t factor) {
  if (factor < 2 || trials < 2) return {{1, trials}};
  const auto by = static_cast<size_t>(factor);
  std::vector<Rung> rungs;
  for (size_t left = trials; left > 1; left = (left + by - 1) / by) rungs.push_back({1, left});
  rungs.push_back({1, 1});
  double fraction = 1;
  for (size_t at = rungs.size(); at-- > 0; fraction /= static_cast<double>(factor))
    rungs[at].fraction = fraction;
  return rungs;
}

}  // namespace tandem::pipeline
