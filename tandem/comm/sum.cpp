// Plain loops over blocks that stay in the first-level cache, which the compiler vectorises; compiled once
// for AVX2 and once for any machine. Contraction is off, so both give the same bits. Half precision is
// converted without branches (base's conversions, bit for bit, NaN payloads aside) for the same reason.
#include "tandem/comm/sum.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>
#include <vector>

#include "tandem/base/error.h"

#define TANDEM_INLINE [[gnu::always_inline]] inline

namespace tandem {
namespace {

constexpr int64_t kBlock = 1024;

TANDEM_INLINE float widen(float x) { return x; }
TANDEM_INLINE double widen(double x) { return x; }
TANDEM_INLINE int32_t widen(int32_t x) { return x; }
TANDEM_INLINE float widen(BFloat16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }
TANDEM_INLINE float widen(Half x) {
  // The exponent moves by multiplying with 2^112, which also normalises subnormals; infinities and NaNs,
  // which come out as 65536 and more, get the exponent they need.
  const uint32_t magnitude = static_cast<uint32_t>(x.bits & 0x7fffu) << 13;
  const float scaled = std::bit_cast<float>(magnitude) * std::bit_cast<float>(0x77800000u);
  const uint32_t special = magnitude >= 0x0f800000u ? 0x7f800000u : 0u;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(scaled) | special |
                              (static_cast<uint32_t>(x.bits & 0x8000u) << 16));
}

template <typename T>
struct Narrow {
  template <typename S>
  TANDEM_INLINE static T from(S x) {
    return static_cast<T>(x);
  }
};
template <>
struct Narrow<BFloat16> {
  TANDEM_INLINE static BFloat16 from(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16;
    const uint32_t quiet = (bits >> 16) | 0x40u;
    return {static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded)};
  }
  TANDEM_INLINE static BFloat16 from(double x) { return from(static_cast<float>(x)); }
};
template <>
struct Narrow<Half> {
  TANDEM_INLINE static Half from(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    const uint32_t magnitude = bits & 0x7fffffffu;
    // Normal: add half a unit in the last place less one, plus the last bit kept; rebias the exponent.
    const uint32_t normal = (magnitude + 0xc8000fffu + ((magnitude >> 13) & 1)) >> 13;
    // Subnormal (below 2^-14): adding 1/2 makes the float adder round at 2^-24, and leaves the result in
    // the low bits.
    const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
    const uint32_t special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
    uint32_t half = magnitude < 0x38800000u ? subnormal : normal;
    half = magnitude >= 0x477ff000u ? special : half;
    return {static_cast<uint16_t>(half | ((bits >> 16) & 0x8000u))};
  }
  TANDEM_INLINE static Half from(double x) { return from(static_cast<float>(x)); }
};

template <typename Part, typename Dst>
TANDEM_INLINE void sum_typed(std::span<const std::byte* const> parts, std::byte* dst_bytes, int64_t num_elems,
                             bool accumulate) {
  using Sum = decltype(widen(Part{}));
  using Wide = std::common_type_t<Sum, decltype(widen(Dst{}))>;
  Dst* dst = reinterpret_cast<Dst*>(dst_bytes);
  alignas(64) Sum sum[kBlock];
  for (int64_t first = 0; first < num_elems; first += kBlock) {
    const int64_t length = std::min(kBlock, num_elems - first);
    const Part* part = reinterpret_cast<const Part*>(parts[0]) + first;
    for (int64_t i = 0; i < length; ++i) sum[i] = widen(part[i]);
    for (size_t p = 1; p < parts.size(); ++p) {
      part = reinterpret_cast<const Part*>(parts[p]) + first;
      for (int64_t i = 0; i < length; ++i) sum[i] += widen(part[i]);
    }
    Dst* out = dst + first;
    if (accumulate) {
      for (int64_t i = 0; i < length; ++i) {
        out[i] = Narrow<Dst>::from(static_cast<Wide>(widen(out[i])) + static_cast<Wide>(sum[i]));
      }
    } else {
      for (int64_t i = 0; i < length; ++i) out[i] = Narrow<Dst>::from(sum[i]);
    }
  }
}

template <typename Part>
TANDEM_INLINE void sum_into(std::span<const std::byte* const> parts, std::byte* dst, DType dst_dtype,
                            int64_t num_elems, bool accumulate) {
  switch (dst_dtype) {
    case DType::F32: return sum_typed<Part, float>(parts, dst, num_elems, accumulate);
    case DType::F64: return sum_typed<Part, double>(parts, dst, num_elems, accumulate);
    case DType::BF16: return sum_typed<Part, BFloat16>(parts, dst, num_elems, accumulate);
    case DType::F16: return sum_typed<Part, Half>(parts, dst, num_elems, accumulate);
    default: break;
  }
  fail_check(__FILE__, __LINE__, "dst_dtype", "a sum of floats goes into a float type");
}

TANDEM_INLINE void sum_any(std::span<const std::byte* const> parts, DType part_dtype, std::byte* dst,
                           DType dst_dtype, int64_t num_elems, bool accumulate) {
  switch (part_dtype) {
    case DType::F32: return sum_into<float>(parts, dst, dst_dtype, num_elems, accumulate);
    case DType::F64: return sum_into<double>(parts, dst, dst_dtype, num_elems, accumulate);
    case DType::BF16: return sum_into<BFloat16>(parts, dst, dst_dtype, num_elems, accumulate);
    case DType::F16: return sum_into<Half>(parts, dst, dst_dtype, num_elems, accumulate);
    case DType::I32: return sum_typed<int32_t, int32_t>(parts, dst, num_elems, accumulate);
    default: break;
  }
  fail_check(__FILE__, __LINE__, "part_dtype", "this type has no sum");
}

#if defined(__x86_64__)
[[gnu::target("avx2")]] void sum_avx2(std::span<const std::byte* const> parts, DType part_dtype,
                                      std::byte* dst, DType dst_dtype, int64_t num_elems, bool accumulate) {
  sum_any(parts, part_dtype, dst, dst_dtype, num_elems, accumulate);
}
bool has_avx2() {
  static const bool has = __builtin_cpu_supports("avx2");
  return has;
}
#endif

}  // namespace

void sum_parts(std::span<const std::byte* const> parts, DType part_dtype, std::byte* dst, DType dst_dtype,
               int64_t num_elems, SumInto into) {
  TANDEM_CHECK(!parts.empty());
  if (into == SumInto::AddEach) {
    TANDEM_CHECK(part_dtype == dst_dtype, "{} into {}", dtype_name(part_dtype), dtype_name(dst_dtype));
    std::vector<const std::byte*> all = {dst};
    all.insert(all.end(), parts.begin(), parts.end());
    return sum_parts(all, part_dtype, dst, dst_dtype, num_elems, SumInto::Overwrite);
  }
  const bool accumulate = into == SumInto::Add;
  TANDEM_CHECK((part_dtype == DType::I32) == (dst_dtype == DType::I32), "{} into {}", dtype_name(part_dtype),
               dtype_name(dst_dtype));
#if defined(__x86_64__)
  if (has_avx2()) return sum_avx2(parts, part_dtype, dst, dst_dtype, num_elems, accumulate);
#endif
  sum_any(parts, part_dtype, dst, dst_dtype, num_elems, accumulate);
}

}  // namespace tandem
