// Copies blocks of A and B into panels, converting to fp32 or pairing bf16 on the way. Where the source runs
// along k, 4 x 4 blocks are transposed in registers; where it runs along the panel, rows are copied. A panel
// may be narrower than the vectors: stores then spill into the next step's place, which is written later.
#include <algorithm>
#include <cstring>

#include "tandem/kernels/cpu/gemm/gemm_engine.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tandem/kernels/cpu/gemm/gemm_pack.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "tandem/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {
namespace {

using cpu::PackArgs;

#if HWY_STATIC_TARGET != HWY_SCALAR
#error "build for plain x86-64: instruction sets are chosen at run time"
#endif

#if HWY_TARGET == HWY_SCALAR
constexpr cpu::TileSize kTile = cpu::kPortableTile;
#elif HWY_TARGET == HWY_AVX2
constexpr cpu::TileSize kTile = cpu::kAvx2Tile;
#else
constexpr cpu::TileSize kTile = cpu::kAvx512Tile;
#endif

// Two neighbours in k as one 32-bit element.
struct Pair {
  uint32_t bits;
};

template <typename Src>
const Src* element(const PackArgs& args, int64_t line, int64_t i) {
  return static_cast<const Src*>(args.src) + line * args.line_stride + i * args.k_stride;
}

template <typename T>
T* panel(const PackArgs& args, int64_t index) {
  return reinterpret_cast<T*>(static_cast<char*>(args.dst) + index * args.panel_bytes);
}

// The panel whose first line is `first`.
PackArgs one_panel(const PackArgs& args, int64_t first, int64_t width, int64_t elem_bytes) {
  PackArgs part = args;
  part.src = static_cast<const char*>(args.src) + first * args.line_stride * elem_bytes;
  part.count = std::min(width, args.count - first);
  part.dst = panel<char>(args, first / width);
  return part;
}

// Steps [begin, end) of any source, one element at a time. dst element (line, step) is dst[step * width +
// line].
template <typename Src>
void pack_slow(const PackArgs& args, int64_t width, int64_t begin, int64_t end, float* dst) {
  for (int64_t i = begin; i < end; ++i) {
    for (int64_t line = 0; line < width; ++line) {
      dst[i * width + line] = line < args.count ? scalar_float(*element<Src>(args, line, i)) : 0.0f;
    }
  }
}

void pack_slow_pairs(const PackArgs& args, int64_t width, int64_t begin, int64_t end, uint32_t* dst) {
  for (int64_t step = begin; step < end; ++step) {
    for (int64_t line = 0; line < width; ++line) {
      uint32_t pair = 0;
      if (line < args.count) {
        pair = element<BFloat16>(args, line, 2 * step)->bits;
        if (2 * step + 1 < args.k) {
          pair |= static_cast<uint32_t>(element<BFloat16>(args, line, 2 * step + 1)->bits) << 16;
        }
      }
      dst[step * width + line] = pair;
    }
  }
}

#if HWY_TARGET != HWY_SCALAR

using FourTag = hn::Full128<float>;
using Four = hn::Vec<FourTag>;

HWY_INLINE Four load_four(const float* src) { return hn::LoadU(FourTag(), src); }
HWY_INLINE Four load_four(const Pair* src) {
  const hn::Full128<uint32_t> d;
  return hn::BitCast(FourTag(), hn::LoadU(d, reinterpret_cast<const uint32_t*>(src)));
}
HWY_INLINE Four load_four(const BFloat16* src) {
  const hn::Full128<uint32_t> d;
  const hn::Full64<uint16_t> d16;
  return hn::BitCast(
      FourTag(), hn::ShiftLeft<16>(hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(src)))));
}
HWY_INLINE Four load_four(const Half* src) {
  const hn::Full64<hwy::float16_t> d16;
  return hn::PromoteTo(FourTag(), hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(src)));
}

// Reads four steps of four lines, writes the four lines of each step at dst, dst + stride, ...
template <typename Src>
HWY_INLINE void transpose_four(const Src* const line[4], int64_t step, float* dst, int64_t stride) {
  const FourTag d;
  const hn::Repartition<double, FourTag> dd;
  const Four r0 = load_four(line[0] + step), r1 = load_four(line[1] + step);
  const Four r2 = load_four(line[2] + step), r3 = load_four(line[3] + step);
  const auto lo01 = hn::BitCast(dd, hn::InterleaveLower(d, r0, r1));
  const auto hi01 = hn::BitCast(dd, hn::InterleaveUpper(d, r0, r1));
  const auto lo23 = hn::BitCast(dd, hn::InterleaveLower(d, r2, r3));
  const auto hi23 = hn::BitCast(dd, hn::InterleaveUpper(d, r2, r3));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dd, lo01, lo23)), d, dst);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dd, lo01, lo23)), d, dst + stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dd, hi01, hi23)), d, dst + 2 * stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dd, hi01, hi23)), d, dst + 3 * stride);
}

// Lines that run along k. Packs whole groups of four steps and returns their number. Groups of lines go from
// last to first so that what the last one spills into a step is overwritten.
template <int kWidth, typename Src>
int64_t pack_transposed(const PackArgs& args, int64_t elem_bytes, int64_t steps, float* dst) {
  constexpr int kGroups = (kWidth + 3) / 4;
  const Src* lines[kGroups][4];
  for (int64_t line = 0; line < 4 * kGroups; ++line) {
    const char* src =
        static_cast<const char*>(args.src) + std::min(line, args.count - 1) * args.line_stride * elem_bytes;
    lines[line / 4][line % 4] = reinterpret_cast<const Src*>(src);
  }
  const int64_t whole = steps / 4 * 4;
  for (int64_t step = 0; step < whole; step += 4) {
    for (int group = kGroups - 1; group >= 0; --group) {
      transpose_four(lines[group], step, dst + step * kWidth + 4 * group, kWidth);
    }
  }
  return whole;
}

constexpr int64_t kRowsAhead = 2;

template <typename Src>
HWY_INLINE void prefetch_row(const Src* row, int64_t count) {
  const auto* bytes = reinterpret_cast<const char*>(row);
  for (int64_t at = 0; at < count * static_cast<int64_t>(sizeof(Src)); at += 64)
    __builtin_prefetch(bytes + at, 0, 2);
}

// The first `valid` elements at src (all lanes if there are more), reading no others.
template <typename Src>
HWY_INLINE FloatVec load_first(FloatTag d, const Src* src, int64_t valid) {
  constexpr int64_t kLanes = hn::MaxLanes(FloatTag());
  if (valid >= kLanes) return load_float(d, src);
  Src copy[kLanes] = {};
  for (int64_t lane = 0; lane < valid; ++lane) copy[lane] = src[lane];
  return load_float(d, copy);
}
HWY_INLINE FloatVec load_first(FloatTag d, const float* src, int64_t valid) {
  return hn::MaskedLoad(hn::FirstN(d, static_cast<size_t>(std::max<int64_t>(valid, 0))), d, src);
}
HWY_INLINE hn::Vec<hn::RebindToUnsigned<FloatTag>> load_first_bits(FloatTag, const BFloat16* src,
                                                                   int64_t valid) {
  constexpr int64_t kLanes = hn::MaxLanes(FloatTag());
  const hn::RebindToUnsigned<FloatTag> d32;
  const hn::Rebind<uint16_t, FloatTag> d16;
  const auto* bits = reinterpret_cast<const uint16_t*>(src);
  if (valid >= kLanes) return hn::PromoteTo(d32, hn::LoadU(d16, bits));
#if HWY_TARGET == HWY_AVX3
  return hn::PromoteTo(
      d32, hn::MaskedLoad(hn::FirstN(d16, static_cast<size_t>(std::max<int64_t>(valid, 0))), d16, bits));
#else
  uint16_t copy[kLanes] = {};
  for (int64_t lane = 0; lane < valid; ++lane) copy[lane] = bits[lane];
  return hn::PromoteTo(d32, hn::LoadU(d16, copy));
#endif
}

// Spills past the panel's width except at the last step: the next one may be another task's.
template <int kWidth, typename D>
HWY_INLINE void store_step(D d, hn::Vec<D> values, bool last, int64_t line, hn::TFromD<D>* dst) {
  constexpr int64_t kLanes = hn::MaxLanes(D());
  if (!last || line + kLanes <= kWidth) {
    hn::StoreU(values, d, dst);
  } else {
    hn::TFromD<D> copy[kLanes];
    hn::StoreU(values, d, copy);
    std::copy(copy, copy + kWidth - line, dst);
  }
}

// Lines side by side in memory: all panels in one sweep, since a row is often a page away from the next.
template <int kWidth, typename Src>
void pack_rows(const PackArgs& args) {
  const FloatTag d;
  constexpr int64_t kLanes = hn::MaxLanes(FloatTag());
  for (int64_t i = 0; i < args.k; ++i) {
    const Src* src = element<Src>(args, 0, i);
    prefetch_row(element<Src>(args, 0, i + kRowsAhead), args.count);
    float* dst = panel<float>(args, 0) + i * kWidth;
    for (int64_t first = 0; first < args.count; first += kWidth, dst += args.panel_bytes / 4) {
      for (int64_t line = 0; line < kWidth; line += kLanes) {
        const FloatVec values = load_first(d, src + first + line, args.count - first - line);
        store_step<kWidth>(d, values, i + 1 == args.k, line, dst + line);
      }
    }
  }
}

template <int kWidth>
void pack_rows_pairs(const PackArgs& args) {
  const FloatTag d;
  const hn::RebindToUnsigned<FloatTag> d32;
  constexpr int64_t kLanes = hn::MaxLanes(FloatTag());
  for (int64_t i = 0; i < args.k; i += 2) {
    const BFloat16* src = element<BFloat16>(args, 0, i);
    prefetch_row(element<BFloat16>(args, 0, i + kRowsAhead), args.count);
    prefetch_row(element<BFloat16>(args, 0, i + 1 + kRowsAhead), args.count);
    const bool single = i + 1 >= args.k;
    uint32_t* dst = panel<uint32_t>(args, 0) + i / 2 * kWidth;
    for (int64_t first = 0; first < args.count; first += kWidth, dst += args.panel_bytes / 4) {
      for (int64_t line = first; line < first + kWidth; line += kLanes) {
        const auto low = load_first_bits(d, src + line, args.count - line);
        const auto high = load_first_bits(d, src + args.k_stride + line, single ? 0 : args.count - line);
        store_step<kWidth>(d32, hn::Or(low, hn::ShiftLeft<16>(high)), i + 2 >= args.k, line - first,
                           dst + line - first);
      }
    }
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

template <int kWidth, typename Src>
void pack_as_float(const PackArgs& args) {
#if HWY_TARGET != HWY_SCALAR
  if (args.line_stride == 1) pack_rows<kWidth, Src>(args);
#endif
  for (int64_t first = 0; first < args.count; first += kWidth) {
    const PackArgs part = one_panel(args, first, kWidth, sizeof(Src));
    auto* dst = static_cast<float*>(part.dst);
    int64_t done = 0;
#if HWY_TARGET != HWY_SCALAR
    if (args.line_stride == 1) {
      done = args.k;
    } else if (args.k_stride == 1) {
      done = pack_transposed<kWidth, Src>(part, sizeof(Src), part.k, dst);
    }
#endif
    pack_slow<Src>(part, kWidth, done, part.k, dst);
    std::fill(dst + part.k * kWidth, dst + part.k_padded * kWidth, 0.0f);
  }
}

template <int kWidth>
void pack_f32(const PackArgs& args) {
  switch (args.dtype) {
    case DType::BF16: return pack_as_float<kWidth, BFloat16>(args);
    case DType::F16: return pack_as_float<kWidth, Half>(args);
    default: return pack_as_float<kWidth, float>(args);
  }
}

template <int kWidth>
void pack_pairs(const PackArgs& args) {
#if HWY_TARGET != HWY_SCALAR
  if (args.line_stride == 1) pack_rows_pairs<kWidth>(args);
#endif
  const int64_t steps = (args.k + 1) / 2;
  for (int64_t first = 0; first < args.count; first += kWidth) {
    const PackArgs part = one_panel(args, first, kWidth, sizeof(BFloat16));
    auto* dst = static_cast<uint32_t*>(part.dst);
    int64_t done = 0;
#if HWY_TARGET != HWY_SCALAR
    if (args.line_stride == 1) {
      done = steps;
    } else if (args.k_stride == 1) {
      done = pack_transposed<kWidth, Pair>(part, sizeof(BFloat16), part.k / 2, reinterpret_cast<float*>(dst));
    }
#endif
    pack_slow_pairs(part, kWidth, done, steps, dst);
    std::fill(dst + steps * kWidth, dst + part.k_padded / 2 * kWidth, 0u);
  }
}

// A for AMX: for each 32 values of k, 32 rows of 64 bytes.
void pack_tiles(const PackArgs& args) {
  constexpr int64_t kRows = cpu::kAmxTile.mr, kDepth = 32, kPairs = kDepth / 2;
  for (int64_t first = 0; first < args.count; first += kRows) {
    const PackArgs whole = one_panel(args, first, kRows, sizeof(BFloat16));
    auto* dst = static_cast<uint32_t*>(whole.dst);
    for (int64_t begin = 0; begin < args.k_padded; begin += kDepth, dst += kRows * kPairs) {
      const int64_t depth = std::min(kDepth, args.k - begin);
      if (args.k_stride == 1) {
        if (depth < kDepth) std::fill(dst, dst + kRows * kPairs, 0u);
        for (int64_t row = 0; row < whole.count; ++row) {
          std::memcpy(dst + row * kPairs, element<BFloat16>(whole, row, begin),
                      static_cast<size_t>(depth) * 2);
        }
        continue;
      }
      uint32_t pairs[kPairs * kRows + 16];  // what pack_pairs may spill
      PackArgs part = whole;
      part.src = element<BFloat16>(whole, 0, begin);
      part.k = depth;
      part.k_padded = kDepth;
      part.dst = pairs;
      pack_pairs<kRows>(part);
      for (int64_t row = 0; row < kRows; ++row) {
        for (int64_t pair = 0; pair < kPairs; ++pair) dst[row * kPairs + pair] = pairs[pair * kRows + row];
      }
    }
  }
}

}  // namespace

const cpu::GemmPacks& packs() {
  static const cpu::GemmPacks table = {pack_f32<kTile.mr>, pack_f32<kTile.nr>, pack_pairs<cpu::kPairTile.mr>,
                                       pack_pairs<cpu::kPairTile.nr>, pack_tiles};
  return table;
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem::cpu {

const GemmPacks& gemm_packs(Isa isa) {
  if (isa >= Isa::Avx512) return N_AVX3::packs();
  if (isa == Isa::Avx2) return N_AVX2::packs();
  return HWY_STATIC_DISPATCH(packs)();
}

}  // namespace tandem::cpu
#endif
