// Along one dimension of an image that is resized: which pixels an output pixel sees, and how much each
// counts.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace tandem {

struct Taps {
  std::vector<int64_t> first, count;
  std::vector<float> weights;  // `most` for each output pixel
  int64_t most = 0;

  // Of `in` pixels, those in [begin, begin + length) become `out`.
  Taps(double begin, double length, int64_t in, int64_t out) {
    const double scale = length / static_cast<double>(out);
    const double reach = std::max(1.0, scale);  // of the triangle on either side
    most = static_cast<int64_t>(std::ceil(2 * reach)) + 2;
    first.resize(static_cast<size_t>(out));
    count.resize(static_cast<size_t>(out));
    weights.resize(static_cast<size_t>(out * most));
    for (int64_t o = 0; o < out; ++o) {
      const double centre = begin + (static_cast<double>(o) + 0.5) * scale;
      const int64_t low =
          std::clamp<int64_t>(static_cast<int64_t>(std::floor(centre - reach + 0.5)), 0, in - 1);
      const int64_t high =
          std::clamp<int64_t>(static_cast<int64_t>(std::floor(centre + reach + 0.5)), low + 1, in);
      set(o, low, std::min(high - low, most), centre, reach);
    }
  }

 private:
  void set(int64_t o, int64_t low, int64_t taps, double centre, double reach) {
    float* out = weights.data() + o * most;
    double sum = 0;
    for (int64_t i = 0; i < taps; ++i) {
      const double away = std::abs(static_cast<double>(low + i) + 0.5 - centre) / reach;
      const double weight = std::max(0.0, 1 - away);
      out[i] = static_cast<float>(weight);
      sum += weight;
    }
    if (sum == 0) out[0] = 1, sum = 1;  // the box ends at the edge of the image
    for (int64_t i = 0; i < taps; ++i) out[i] = static_cast<float>(out[i] / sum);
    first[static_cast<size_t>(o)] = low;
    count[static_cast<size_t>(o)] = taps;
  }
};

}  // namespace tandem
