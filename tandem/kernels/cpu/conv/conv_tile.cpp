#include "tandem/kernels/cpu/conv/conv_tile.h"

#include <cstring>

#include "tandem/kernels/cpu/pointwise/pointwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tandem/kernels/cpu/conv/conv_tile.cpp"
#include "hwy/foreach_target.h"
#include "tandem/kernels/cpu/pointwise/pointwise-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {
namespace {

// 32 registers hold 8 x 3 sums, 16 hold 6 x 2; the rest is for a row of weights and a broadcast.
#if HWY_MAX_BYTES >= 64
constexpr int kRows = 8;
constexpr int kMostVecs = 3;
#else
constexpr int kRows = 6;
constexpr int kMostVecs = 2;
#endif
static_assert(kRows <= cpu::kConvPixels);

template <int kVecs>
void tile(const cpu::ConvTileArgs& args) {
  const FloatTag d;
  constexpr int64_t kLanes = HWY_LANES(float);
  FloatVec sums[kRows][kVecs];
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 3
    for (int v = 0; v < kVecs; ++v) {
      sums[m][v] = args.add ? hn::LoadU(d, args.sums + m * args.sums_pitch + v * kLanes) : hn::Zero(d);
    }
  }
  const float* weights = args.weights;
  for (int64_t r = 0; r < args.kernel_rows; ++r) {
    const float* pixels[kRows];
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m)
      pixels[m] = static_cast<const float*>(args.pixels[m]) + r * args.row_pitch;
    const int64_t run = args.run;
    for (int64_t k = 0; k < run; ++k, weights += kVecs * kLanes) {
      FloatVec w[kVecs];
#pragma GCC unroll 3
      for (int v = 0; v < kVecs; ++v) w[v] = hn::LoadU(d, weights + v * kLanes);
#pragma GCC unroll 8
      for (int m = 0; m < kRows; ++m) {
        const FloatVec x = hn::Set(d, pixels[m][k]);
#pragma GCC unroll 3
        for (int v = 0; v < kVecs; ++v) sums[m][v] = hn::MulAdd(x, w[v], sums[m][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 3
    for (int v = 0; v < kVecs; ++v) hn::StoreU(sums[m][v], d, args.sums + m * args.sums_pitch + v * kLanes);
  }
}

template <int kVecs>
void grad_tile(const cpu::ConvGradTileArgs& args) {
  const FloatTag d;
  constexpr int64_t kLanes = HWY_LANES(float);
  FloatVec sums[kRows][kVecs];
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 3
    for (int v = 0; v < kVecs; ++v) sums[m][v] = hn::LoadU(d, args.sums + m * args.sums_pitch + v * kLanes);
  }
  const float* dy = args.dy;
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* x = args.x + row * args.x_row_pitch;
    for (int64_t col = 0; col < args.cols; ++col, x += args.x_col_pitch, dy += args.dy_pitch) {
      FloatVec values[kVecs];
#pragma GCC unroll 3
      for (int v = 0; v < kVecs; ++v) values[v] = hn::LoadU(d, x + v * kLanes);
#pragma GCC unroll 8
      for (int m = 0; m < kRows; ++m) {
        const FloatVec g = hn::Set(d, dy[m]);
#pragma GCC unroll 3
        for (int v = 0; v < kVecs; ++v) sums[m][v] = hn::MulAdd(g, values[v], sums[m][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 3
    for (int v = 0; v < kVecs; ++v) hn::StoreU(sums[m][v], d, args.sums + m * args.sums_pitch + v * kLanes);
  }
}

void run_tile(const cpu::ConvTileArgs& args) {
  switch (args.vecs) {
    case 1: return tile<1>(args);
    case 2: return tile<2>(args);
    default: return tile<kMostVecs>(args);
  }
}

void run_grad_tile(const cpu::ConvGradTileArgs& args) {
  switch (args.vecs) {
    case 1: return grad_tile<1>(args);
    case 2: return grad_tile<2>(args);
    default: return grad_tile<kMostVecs>(args);
  }
}

cpu::ConvTileSize tile_size() { return {HWY_LANES(float), kRows, kMostVecs}; }

void load_elems(DType dtype, const void* src, int64_t elems, float* dst) {
  const FloatTag d;
  cpu::with_storage(dtype, [&]<typename S>(S) {
    for_each_vector(elems, [&](size_t i, auto part) HWY_ATTR {
      store_float(d, load_float(d, static_cast<const S*>(src) + i, part), dst + i, part);
    });
  });
}

void store_elems(DType dtype, const float* src, const float* bias, int64_t elems, void* dst) {
  const FloatTag d;
  cpu::with_storage(dtype, [&]<typename S>(S) {
    for_each_vector(elems, [&](size_t i, auto part) HWY_ATTR {
      const FloatVec sum = load_float(d, src + i, part);
      const FloatVec v = bias == nullptr ? sum : hn::Add(sum, load_float(d, bias + i, part));
      store_float(d, v, static_cast<S*>(dst) + i, part);
    });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem {
HWY_EXPORT(run_tile);
HWY_EXPORT(run_grad_tile);
HWY_EXPORT(tile_size);
HWY_EXPORT(load_elems);
HWY_EXPORT(store_elems);

namespace cpu {

ConvTileSize conv_tile_size() { return HWY_DYNAMIC_DISPATCH(tile_size)(); }
void conv_tile(const ConvTileArgs& args) { HWY_DYNAMIC_DISPATCH(run_tile)(args); }
void conv_grad_tile(const ConvGradTileArgs& args) { HWY_DYNAMIC_DISPATCH(run_grad_tile)(args); }

void conv_load(DType dtype, const void* src, int64_t elems, float* dst) {
  if (dtype == DType::F32) {
    std::memcpy(dst, src, static_cast<size_t>(elems) * sizeof(float));
  } else {
    HWY_DYNAMIC_DISPATCH(load_elems)(dtype, src, elems, dst);
  }
}

void conv_store(DType dtype, const float* src, const float* bias, int64_t elems, void* dst) {
  HWY_DYNAMIC_DISPATCH(store_elems)(dtype, src, bias, elems, dst);
}

}  // namespace cpu
}  // namespace tandem
#endif
