// bf16 tiles for AMX: 2 x 2 tile registers of 16 x 16 fp32 sums, fed by 16 x 32 tiles of A and of B (the
// latter in pairs of k). A thread must load the tile shapes before its products and release them after,
// so that the kernel need not save 8 KiB of tiles at every context switch. fp32 tiles (gemm_split.h) are the
// same, with six products in place of one.
#include <immintrin.h>

#include <algorithm>

#include "tandem/kernels/cpu/gemm/gemm_engine.h"
#include "tandem/kernels/cpu/gemm/gemm_split.h"

#pragma GCC push_options
#pragma GCC target("amx-tile,amx-bf16,avx512f")

namespace tandem::cpu {
namespace {

constexpr int kTileBytes = 16 * 64;
constexpr int kBurnProducts = 6;
constexpr double kBurnFlops = 2.0 * kBurnProducts * 16 * 16 * 32;
constexpr int kSplitProducts = 6;  // of bf16 for one of fp32

// The operand of ldtilecfg: palette 1, eight tiles of 16 rows and 64 bytes.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

// In static memory: GCC believes that ldtilecfg reads eight bytes and tileloadd none, and would drop the
// stores that fill a local.
constexpr TileConfig kTileConfig;
alignas(64) uint8_t g_zeros[kTileBytes];

#include "tandem/kernels/cpu/gemm/gemm_split_product-inl.h"

void zero_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

// Old sums are added after the product, as on every path, so that a full tile and a ragged one agree.
void store_sums(float* dst, int64_t dst_stride, bool add) {
  alignas(64) float sums[32 * 32];
  float* to = add ? sums : dst;
  const int64_t to_stride = add ? 32 : dst_stride;
  _tile_stored(0, to, to_stride * 4);
  _tile_stored(1, to + 16, to_stride * 4);
  _tile_stored(2, to + 16 * to_stride, to_stride * 4);
  _tile_stored(3, to + 16 * to_stride + 16, to_stride * 4);
  if (!add) return;
  for (int row = 0; row < 32; ++row) {
    for (int col = 0; col < 32; col += 16) {
      float* at = dst + row * dst_stride + col;
      _mm512_storeu_ps(at, _mm512_add_ps(_mm512_loadu_ps(at), _mm512_load_ps(sums + row * 32 + col)));
    }
  }
}

void product(int64_t k, const void* a, const void* b, float* dst, int64_t dst_stride, int64_t, int64_t,
             bool add, const FetchAhead& ahead) {
  for (int64_t i = 0; i < ahead.lines; ++i) __builtin_prefetch(ahead.first + 64 * i, 0, 2);
  const auto* a_at = static_cast<const uint8_t*>(a);
  const auto* b_at = static_cast<const uint8_t*>(b);
  zero_sums();
  for (int64_t i = 0; i < k; i += 32) {
    _tile_loadd(4, a_at, 64);
    _tile_loadd(6, b_at, 128);
    _tile_loadd(5, a_at + kTileBytes, 64);
    _tile_loadd(7, b_at + 64, 128);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    a_at += 2 * kTileBytes;
    b_at += 2 * kTileBytes;
  }
  store_sums(dst, dst_stride, add);
}

// What comes from afar, a few lines with each step: all at once would have the panels wait for them.
class Fetcher {
 public:
  Fetcher(const std::byte* first, int64_t lines, int64_t steps)
      : next_(first), left_(lines), per_step_((lines + steps - 1) / steps) {}
  void step() {
    const int64_t lines = std::min(per_step_, left_);
    for (int64_t i = 0; i < lines; ++i) __builtin_prefetch(next_ + 64 * i, 0, 2);
    next_ += 64 * lines;
    left_ -= lines;
  }

 private:
  const std::byte* next_;
  int64_t left_;
  int64_t per_step_;
};

struct AmxUnit {
  void step() {
    fetch_a.step();
    fetch_b.step();
    for (int64_t i = 0; i < rows_per_step && rows_left > 0; ++i, --rows_left, row += row_stride) {
      __builtin_prefetch(row, 1);
      __builtin_prefetch(row + 16, 1);
    }
  }
  void fetch(const std::byte* part) {
#pragma GCC unroll 32
    for (int64_t i = 0; i < kSplitPartBytes; i += 64) __builtin_prefetch(part + i);
  }
  void load(const std::byte* a, const std::byte* b) {
    _tile_loadd(4, a, 64);
    _tile_loadd(6, b, 64);
    _tile_loadd(7, b + kTileBytes, 64);
    _tile_loadd(5, a + kTileBytes, 64);
  }
  void multiply() {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  void multiply_then_load_a(const std::byte* part) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(4, part, 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    _tile_loadd(5, part + kTileBytes, 64);
  }
  void multiply_then_load_b(const std::byte* part) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(2, 5, 6);
    _tile_loadd(6, part, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(3, 5, 7);
    _tile_loadd(7, part + kTileBytes, 64);
  }
  void multiply_then_load(const std::byte* a, const std::byte* b) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(4, a, 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_loadd(6, b, 64);
    _tile_dpbf16ps(3, 5, 7);
    _tile_loadd(7, b + kTileBytes, 64);
    _tile_loadd(5, a + kTileBytes, 64);
  }

  Fetcher fetch_a, fetch_b;
  const float* row;  // of C
  int64_t row_stride, rows_left, rows_per_step;
};

void split_product(int64_t k, const void* a, const void* b, float* dst, int64_t dst_stride, int64_t, int64_t,
                   bool add, const FetchAhead& ahead) {
  const int64_t steps = k / kSplitDepth;
  AmxUnit unit{.fetch_a = {ahead.first, ahead.lines, steps},
               .fetch_b = {ahead.b_first, ahead.b_lines, steps},
               .row = dst,
               .row_stride = dst_stride,
               .rows_left = 32,
               .rows_per_step = (32 + steps - 1) / steps};
  zero_sums();
  split_product(unit, k, a, b);
  store_sums(dst, dst_stride, add);
}

float burn(int64_t rounds) {
  amx_enter();
  zero_sums();
  _tile_zero(4);
  _tile_zero(5);
  _tile_loadd(6, g_zeros, 64);
  _tile_loadd(7, g_zeros, 64);
  for (int64_t i = 0; i < rounds; ++i) {
    _tile_dpbf16ps(0, 6, 7);
    _tile_dpbf16ps(1, 6, 7);
    _tile_dpbf16ps(2, 6, 7);
    _tile_dpbf16ps(3, 6, 7);
    _tile_dpbf16ps(4, 6, 7);
    _tile_dpbf16ps(5, 6, 7);
  }
  alignas(64) float sums[16 * 16];
  _tile_stored(0, sums, 64);
  amx_leave();
  return sums[0];
}

}  // namespace

void amx_enter() { _tile_loadconfig(&kTileConfig); }

void amx_leave() { _tile_release(); }

GemmMicro gemm_micro_amx() { return {product, burn, kBurnFlops}; }

GemmMicro gemm_micro_amx_split() { return {split_product, burn, kBurnFlops / kSplitProducts}; }

}  // namespace tandem::cpu

#pragma GCC pop_options
