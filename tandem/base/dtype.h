// Element types, and conversions between fp32 and the storage types of 16 and 8 bits (round to nearest even).
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace tandem {

enum class DType : uint8_t { F32, BF16, F16, F64, I32, I16, U8, F8E4M3, F8E5M2 };

std::string_view dtype_name(DType dtype);  // "f32", "bf16", ...
DType parse_dtype(std::string_view name);  // throws ConfigError on an unknown name
constexpr int64_t dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::F64: return 8;
    case DType::F32:
    case DType::I32: return 4;
    case DType::BF16:
    case DType::F16:
    case DType::I16: return 2;
    case DType::U8:
    case DType::F8E4M3:
    case DType::F8E5M2: return 1;
  }
  return 0;
}
constexpr bool is_float(DType dtype) {
  return dtype != DType::I32 && dtype != DType::I16 && dtype != DType::U8;
}
constexpr bool is_half(DType dtype) { return dtype == DType::BF16 || dtype == DType::F16; }
constexpr bool is_fp8(DType dtype) { return dtype == DType::F8E4M3 || dtype == DType::F8E5M2; }

// Storage-only 16-bit floats: arithmetic is always done after conversion to float.
struct BFloat16 {
  uint16_t bits;
};
struct Half {
  uint16_t bits;
};

inline float to_float(BFloat16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }
inline BFloat16 to_bfloat16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40)};  // quiet NaN
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16)};
}
float to_float(Half x);
Half to_half(float x);

// 8-bit floats by their bits, as matrix units read them: e4m3 has no infinity, and one NaN of each sign. What
// is too large becomes the largest finite value.
inline constexpr float kLargestE4M3 = 448, kLargestE5M2 = 57344;
constexpr float largest_fp8(DType dtype) { return dtype == DType::F8E4M3 ? kLargestE4M3 : kLargestE5M2; }
float fp8_to_float(uint8_t bits, DType dtype);
uint8_t to_fp8(float x, DType dtype);

}  // namespace tandem
