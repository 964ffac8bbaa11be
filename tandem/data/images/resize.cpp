// Columns first: a row of the output is a sum of whole rows of the input, which vectors make with no thought
// of pixels, and only as many rows as come out are then resized along. There a pixel of four lanes is a
// vector.
#include "tandem/data/images/resize.h"

#include <algorithm>
#include <cmath>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tandem/data/images/resize.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "tandem/data/images/taps.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {
namespace resizing {

namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<float>;

HWY_INLINE hn::Vec<Tag> load(Tag d, const float* src) { return hn::LoadU(d, src); }
HWY_INLINE hn::Vec<Tag> load(Tag d, const uint8_t* src) {
  const hn::Rebind<uint8_t, Tag> d8;
  const hn::RebindToSigned<Tag> d32;
  return hn::ConvertTo(d, hn::PromoteTo(d32, hn::LoadU(d8, src)));
}

// dst[count] = sum of `taps` rows by their weights.
template <typename S>
HWY_ATTR void add_rows(const S* src, int64_t pitch, const float* weights, int64_t taps, int64_t count,
                       float* dst) {
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t x = 0;
  for (; x + 4 * lanes <= count; x += 4 * lanes) {
    auto a = hn::Zero(d), b = hn::Zero(d), c = hn::Zero(d), e = hn::Zero(d);
    const S* row = src + x;
    for (int64_t i = 0; i < taps; ++i, row += pitch) {
      const auto weight = hn::Set(d, weights[i]);
      a = hn::MulAdd(load(d, row), weight, a);
      b = hn::MulAdd(load(d, row + lanes), weight, b);
      c = hn::MulAdd(load(d, row + 2 * lanes), weight, c);
      e = hn::MulAdd(load(d, row + 3 * lanes), weight, e);
    }
    hn::StoreU(a, d, dst + x);
    hn::StoreU(b, d, dst + x + lanes);
    hn::StoreU(c, d, dst + x + 2 * lanes);
    hn::StoreU(e, d, dst + x + 3 * lanes);
  }
  for (; x + lanes <= count; x += lanes) {
    auto sum = hn::Zero(d);
    for (int64_t i = 0; i < taps; ++i)
      sum = hn::MulAdd(load(d, src + i * pitch + x), hn::Set(d, weights[i]), sum);
    hn::StoreU(sum, d, dst + x);
  }
  for (; x < count; ++x) {
    float sum = 0;
    for (int64_t i = 0; i < taps; ++i) sum += weights[i] * static_cast<float>(src[i * pitch + x]);
    dst[x] = sum;
  }
}

template <int kLanes>
void resize_row(const float* src, const Taps& taps, int64_t side, const Finish& finish, float* dst) {
  constexpr int kChannels = kLanes == 4 ? 3 : kLanes;
  for (int64_t x = 0; x < side; ++x, dst += kChannels) {
    const auto from = static_cast<size_t>(finish.flip ? side - 1 - x : x);
    const float* at = src + taps.first[from] * kLanes;
    const float* weights = taps.weights.data() + static_cast<int64_t>(from) * taps.most;
    float sums[kChannels] = {};
    for (int64_t i = 0; i < taps.count[from]; ++i, at += kLanes) {
      for (int c = 0; c < kChannels; ++c) sums[c] += weights[i] * at[c];
    }
    for (size_t c = 0; c < kChannels; ++c) dst[c] = sums[c] * finish.factor[c] + finish.shift[c];
  }
}

#if HWY_TARGET != HWY_SCALAR
template <>
HWY_ATTR void resize_row<4>(const float* src, const Taps& taps, int64_t side, const Finish& finish,
                            float* dst) {
  const hn::FixedTag<float, 4> d;
  const float factors[4] = {finish.factor[0], finish.factor[1], finish.factor[2], 0};
  const float shifts[4] = {finish.shift[0], finish.shift[1], finish.shift[2], 0};
  const auto factor = hn::LoadU(d, factors), shift = hn::LoadU(d, shifts);
  for (int64_t x = 0; x < side; ++x, dst += 3) {
    const auto from = static_cast<size_t>(finish.flip ? side - 1 - x : x);
    const float* at = src + taps.first[from] * 4;
    const float* weights = taps.weights.data() + static_cast<int64_t>(from) * taps.most;
    auto sum = hn::Zero(d);
    for (int64_t i = 0; i < taps.count[from]; ++i, at += 4)
      sum = hn::MulAdd(hn::LoadU(d, at), hn::Set(d, weights[i]), sum);
    sum = hn::MulAdd(sum, factor, shift);
    float pixel[4];
    hn::StoreU(sum, d, pixel);
    for (int c = 0; c < 3; ++c) dst[c] = pixel[c];
  }
}
#endif

template <int kLanes, typename S>
void resize_as(const S* src, const ImageSize& size, const PixelBox& box, int64_t side, const Finish& finish,
               float* dst) {
  constexpr int64_t kChannels = kLanes == 4 ? 3 : kLanes;
  const Taps down(box.top, box.height, size.height, side);
  Taps along(box.left, box.width, size.width, side);
  const int64_t left = along.first.front(), right = along.first.back() + along.count.back();
  for (int64_t& first : along.first) first -= left;
  thread_local std::vector<float> row;
  row.resize(static_cast<size_t>((right - left) * kLanes));
  for (int64_t y = 0; y < side; ++y, dst += side * kChannels) {
    const auto at = static_cast<size_t>(y);
    add_rows(src + (down.first[at] * size.width + left) * kLanes, size.width * kLanes,
             down.weights.data() + y * down.most, down.count[at], (right - left) * kLanes, row.data());
    resize_row<kLanes>(row.data(), along, side, finish, dst);
  }
}

template <typename S>
void resize_any(const S* src, const ImageSize& size, int64_t lanes, const PixelBox& box, int64_t side,
                const Finish& finish, float* dst) {
  switch (lanes) {
    case 1: return resize_as<1>(src, size, box, side, finish, dst);
    case 4: return resize_as<4>(src, size, box, side, finish, dst);
    default: return resize_as<3>(src, size, box, side, finish, dst);
  }
}

}  // namespace resizing

void resize_bytes(const uint8_t* src, const ImageSize& size, int64_t lanes, const PixelBox& box, int64_t side,
                  const Finish& finish, float* dst) {
  resizing::resize_any(src, size, lanes, box, side, finish, dst);
}
void resize_floats(const float* src, const ImageSize& size, int64_t lanes, const PixelBox& box, int64_t side,
                   const Finish& finish, float* dst) {
  resizing::resize_any(src, size, lanes, box, side, finish, dst);
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem {

HWY_EXPORT(resize_bytes);
HWY_EXPORT(resize_floats);

void resize(const uint8_t* src, const ImageSize& size, int64_t lanes, const PixelBox& box, int64_t side,
            const Finish& finish, float* dst) {
  HWY_DYNAMIC_DISPATCH(resize_bytes)(src, size, lanes, box, side, finish, dst);
}

void resize(const float* src, const ImageSize& size, int64_t lanes, const PixelBox& box, int64_t side,
            const Finish& finish, float* dst) {
  HWY_DYNAMIC_DISPATCH(resize_floats)(src, size, lanes, box, side, finish, dst);
}

}  // namespace tandem
#endif
