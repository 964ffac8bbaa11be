#include "tandem/data/images/resize.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace tandem {
namespace {

// Along one dimension: which pixels an output pixel sees, and how much each counts.
struct Taps {
  std::vector<int64_t> first, count;
  std::vector<float> weights;  // `most` for each output pixel
  int64_t most = 0;

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

template <int kChannels, typename S>
void resize_row(const S* src, const Taps& taps, int64_t side, float* dst) {
  for (int64_t x = 0; x < side; ++x, dst += kChannels) {
    const S* at = src + taps.first[static_cast<size_t>(x)] * kChannels;
    const float* weights = taps.weights.data() + x * taps.most;
    float sums[kChannels] = {};
    for (int64_t i = 0; i < taps.count[static_cast<size_t>(x)]; ++i, at += kChannels) {
      for (int c = 0; c < kChannels; ++c) sums[c] += weights[i] * static_cast<float>(at[c]);
    }
    for (int c = 0; c < kChannels; ++c) dst[c] = sums[c];
  }
}

// Rows first, into `narrow`, then columns: only rows that some output sees.
template <int kChannels, typename S>
void resize_as(const S* src, const ImageSize& size, const Box& box, int64_t side, float* dst) {
  const Taps down(box.top, box.height, size.height, side), along(box.left, box.width, size.width, side);
  const int64_t top = down.first.front(), end = down.first.back() + down.count.back();
  const int64_t pitch = side * kChannels;
  thread_local std::vector<float> narrow;
  narrow.resize(static_cast<size_t>((end - top) * pitch));
  for (int64_t row = top; row < end; ++row)
    resize_row<kChannels>(src + row * size.width * kChannels, along, side,
                          narrow.data() + (row - top) * pitch);
  for (int64_t y = 0; y < side; ++y, dst += pitch) {
    const float* rows = narrow.data() + (down.first[static_cast<size_t>(y)] - top) * pitch;
    const float* weights = down.weights.data() + y * down.most;
    std::fill_n(dst, pitch, 0.0f);
    for (int64_t i = 0; i < down.count[static_cast<size_t>(y)]; ++i, rows += pitch) {
      const float weight = weights[i];
      for (int64_t x = 0; x < pitch; ++x) dst[x] += weight * rows[x];
    }
  }
}

template <typename S>
void resize_any(const S* src, const ImageSize& size, int64_t channels, const Box& box, int64_t side,
                float* dst) {
  if (channels == 1) return resize_as<1>(src, size, box, side, dst);
  resize_as<3>(src, size, box, side, dst);
}

}  // namespace

void resize(const uint8_t* src, const ImageSize& size, int64_t channels, const Box& box, int64_t side,
            float* dst) {
  resize_any(src, size, channels, box, side, dst);
}

void resize(const float* src, const ImageSize& size, int64_t channels, const Box& box, int64_t side,
            float* dst) {
  resize_any(src, size, channels, box, side, dst);
}

}  // namespace tandem
