#include "tandem/cli/draw.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace tandem::cli {
namespace {

// How many of `weights`, which fall, top_p leaves.
size_t count_within(std::span<const double> weights, double top_p) {
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  double sum = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    sum += weights[i];
    if (sum >= top_p * total) return i + 1;
  }
  return weights.size();
}

}  // namespace

int32_t draw(std::span<const float> logits, const Drawing& how, float uniform) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  if (how.temperature <= 0)
    return static_cast<int32_t>(std::find(logits.begin(), logits.end(), largest) - logits.begin());
  std::vector<int32_t> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  if (how.top_k > 0 || how.top_p < 1) {
    const auto more_likely = [&](int32_t a, int32_t b) {
      const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
      return x != y ? x > y : a < b;
    };
    const size_t most = how.top_k > 0 ? static_cast<size_t>(how.top_k) : tokens.size();
    const size_t kept = std::min(most, tokens.size());
    std::partial_sort(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(kept), tokens.end(),
                      more_likely);
    tokens.resize(kept);
  }
  std::vector<double> weights;
  for (int32_t token : tokens)
    weights.push_back(std::exp((logits[static_cast<size_t>(token)] - largest) / how.temperature));
  if (how.top_p < 1) weights.resize(count_within(weights, how.top_p));
  double left = uniform * std::accumulate(weights.begin(), weights.end(), 0.0);
  for (size_t i = 0; i < weights.size(); ++i) {
    left -= weights[i];
    if (left < 0) return tokens[i];
  }
  return tokens[weights.size() - 1];
}

}  // namespace tandem::cli
