// A draw must cost little beside a token, which on a GPU takes a millisecond: no pass over the vocabulary
// sorts it or calls exp. Two passes in vectors find the largest logit and the sum of weights of each block;
// then only the blocks that matter are looked at.
#include "tandem/cli/draw.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

namespace tandem::cli {
namespace {

constexpr size_t kBlock = 256;
constexpr size_t kLanes = 16;  // the compiler makes vectors of them

// Calls body(first, count) for each block.
template <typename Body>
void for_blocks(size_t size, const Body& body) {
  for (size_t first = 0; first < size; first += kBlock) body(first, std::min(kBlock, size - first));
}

// The largest number; what is no number does not count.
float largest_of(const float* values, size_t count) {
  std::array<float, kLanes> lanes;
  lanes.fill(-std::numeric_limits<float>::infinity());
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane)
      lanes[lane] = values[i + lane] > lanes[lane] ? values[i + lane] : lanes[lane];
  }
  for (; i < count; ++i) lanes[0] = values[i] > lanes[0] ? values[i] : lanes[0];
  return *std::max_element(lanes.begin(), lanes.end());
}

// 2^x for x <= 0, within 3e-7; kNothing below 2^-126, and of what is no number.
constexpr float kNothing = 0x1p-126f;
inline float quick_exp2(float x) {
  const float least = -126.0f, bounded = x > least ? x : least;
  const float to_whole = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number
  const float whole = (bounded + to_whole) - to_whole, f = bounded - whole;
  float p = 1.339887440e-3f;
  p = p * f + 9.618437357e-3f;
  p = p * f + 5.550332548e-2f;
  p = p * f + 2.402264791e-1f;
  p = p * f + 6.931472028e-1f;
  p = p * f + 1.0f;
  const auto power = std::bit_cast<float>((static_cast<int32_t>(whole) + 127) << 23);
  return p * power;
}

// A vocabulary's logits with the largest of each block.
struct Logits {
  std::span<const float> all;
  std::vector<float> block_largest;
  float largest = -std::numeric_limits<float>::infinity();
  double temperature;

  Logits(std::span<const float> logits, double at) : all(logits), temperature(at) {
    for_blocks(all.size(), [&](size_t first, size_t count) {
      block_largest.push_back(largest_of(all.data() + first, count));
      largest = std::max(largest, block_largest.back());
    });
  }
  float to_power() const { return static_cast<float>(1.4426950408889634 / temperature); }  // of 2
  float weight(float logit) const { return quick_exp2((logit - largest) * to_power()); }

  std::vector<double> block_weights() const {
    std::vector<double> weights;
    weights.reserve(block_largest.size());
    const float top = largest, power = to_power();
    for_blocks(all.size(), [&](size_t first, size_t count) {
      std::array<float, kBlock> made{};
      const float* from = all.data() + first;
      for (size_t i = 0; i < count; ++i) made[i] = quick_exp2((from[i] - top) * power);
      std::array<float, kLanes> lanes{};
      for (size_t i = 0; i < kBlock; i += kLanes) {
        for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += made[i + lane];
      }
      double sum = 0;
      for (float lane : lanes) sum += lane;
      weights.push_back(sum);
    });
    return weights;
  }
};

double total_of(std::span<const double> weights) {
  double total = 0;
  for (double weight : weights) total += weight;
  return total;
}

// By the weights of blocks, then by those of its tokens.
int32_t draw_among_all(const Logits& logits, float uniform) {
  const std::vector<double> weights = logits.block_weights();
  double left = uniform * total_of(weights);
  size_t block = 0;
  while (block + 1 < weights.size() && left >= weights[block]) left -= weights[block++];
  const size_t first = block * kBlock, end = std::min(logits.all.size(), first + kBlock);
  size_t token = first;  // the last one that is likely at all, where rounding leads past the end
  for (size_t i = first; i < end; ++i) {
    const float weight = logits.weight(logits.all[i]);
    if (weight <= kNothing) continue;
    token = i;
    left -= weight;
    if (left < 0) break;
  }
  return static_cast<int32_t>(token);
}

struct Candidate {
  int32_t token;
  float logit;
  double weight;
};

bool more_likely(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

// All tokens whose logit is at least that.
std::vector<Candidate> candidates_from(const Logits& logits, float least) {
  std::vector<Candidate> found;
  for (size_t block = 0; block < logits.block_largest.size(); ++block) {
    if (!(logits.block_largest[block] >= least)) continue;
    const size_t end = std::min(logits.all.size(), (block + 1) * kBlock);
    for (size_t i = block * kBlock; i < end; ++i) {
      const float logit = logits.all[i];
      if (!(logit >= least)) continue;
      found.push_back(
          {static_cast<int32_t>(i), logit, std::exp((logit - logits.largest) / logits.temperature)});
    }
  }
  return found;
}

// The k likeliest. At least k logits reach the k-th largest of the blocks' maxima.
std::vector<Candidate> top_k_of(const Logits& logits, size_t k) {
  float least = -std::numeric_limits<float>::infinity();
  if (k <= logits.block_largest.size()) {
    std::vector<float> maxima = logits.block_largest;
    std::nth_element(maxima.begin(), maxima.begin() + static_cast<ptrdiff_t>(k) - 1, maxima.end(),
                     std::greater<>());
    least = maxima[k - 1];
  }
  std::vector<Candidate> found = candidates_from(logits, least);
  if (found.size() > k) {
    std::nth_element(found.begin(), found.begin() + static_cast<ptrdiff_t>(k) - 1, found.end(), more_likely);
    found.resize(k);
  }
  return found;
}

// The likeliest that together have the weight `enough`, if these have it. Sums are known to a millionth.
bool cut_at_weight(std::vector<Candidate>& candidates, double enough) {
  std::sort(candidates.begin(), candidates.end(), more_likely);
  double sum = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    sum += candidates[i].weight;
    if (sum < enough * (1 - 1e-6)) continue;
    candidates.resize(i + 1);
    return true;
  }
  return false;
}

// Looks at ever less likely tokens until they are enough.
std::vector<Candidate> top_p_of(const Logits& logits, double top_p) {
  const double enough = top_p * total_of(logits.block_weights());
  constexpr double kFirst = 4, kLast = 90;  // weights of exp(-4) and more; of less than exp(-90) are none
  for (double distance = kFirst; distance < kLast; distance *= 2) {
    const auto least = static_cast<float>(logits.largest - distance * logits.temperature);
    std::vector<Candidate> found = candidates_from(logits, least);
    if (cut_at_weight(found, enough)) return found;
  }
  std::vector<Candidate> all = candidates_from(logits, -std::numeric_limits<float>::infinity());
  cut_at_weight(all, enough);
  return all;
}

}  // namespace

int32_t draw(std::span<const float> all, const Drawing& how, float uniform) {
  const Logits logits(all, how.temperature);
  if (!std::isfinite(logits.largest)) return kNoToken;
  if (how.temperature <= 0)
    return static_cast<int32_t>(std::find(all.begin(), all.end(), logits.largest) - all.begin());
  if (how.top_k <= 0 && how.top_p >= 1) return draw_among_all(logits, uniform);
  std::vector<Candidate> candidates;
  if (how.top_k > 0) {
    candidates = top_k_of(logits, static_cast<size_t>(how.top_k));
    double total = 0;
    for (const Candidate& candidate : candidates) total += candidate.weight;
    if (how.top_p < 1) cut_at_weight(candidates, how.top_p * total);
  } else {
    candidates = top_p_of(logits, how.top_p);
  }
  // By token, so that a draw does not depend on how they were found.
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
  double left = 0;
  for (const Candidate& candidate : candidates) left += uniform * candidate.weight;
  for (const Candidate& candidate : candidates) {
    left -= candidate.weight;
    if (left < 0) return candidate.token;
  }
  return candidates.back().token;
}

}  // namespace tandem::cli
