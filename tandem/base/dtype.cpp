#include "tandem/base/dtype.h"

#include <algorithm>
#include <cmath>

#include "tandem/base/error.h"

namespace tandem {

std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::F32: return "f32";
    case DType::BF16: return "bf16";
    case DType::F16: return "f16";
    case DType::F64: return "f64";
    case DType::I32: return "i32";
    case DType::I16: return "i16";
    case DType::U8: return "u8";
    case DType::F8E4M3: return "f8e4m3";
    case DType::F8E5M2: return "f8e5m2";
  }
  return "?";
}

DType parse_dtype(std::string_view name) {
  for (DType dtype : {DType::F32, DType::BF16, DType::F16, DType::F64, DType::I32, DType::I16, DType::U8,
                      DType::F8E4M3, DType::F8E5M2}) {
    if (dtype_name(dtype) == name) return dtype;
  }
  throw ConfigError("dtype '{}': expected one of f32, bf16, f16, f64, i32, i16, u8, f8e4m3, f8e5m2", name);
}

float to_float(Half x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16;
  const uint32_t exponent = (x.bits >> 10) & 0x1f;
  const uint32_t mantissa = x.bits & 0x3ffu;
  if (exponent == 0) {  // zero or subnormal: the value is mantissa * 2^-24
    const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

Half to_half(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {static_cast<uint16_t>(sign | 0x7e00u)};
  if (magnitude >= 0x477ff000u) return {static_cast<uint16_t>(sign | 0x7c00u)};  // rounds to infinity
  if (magnitude < 0x38800000u) {  // subnormal: an integer count of 2^-24, rounded to even by rint
    const float count = std::rint(std::ldexp(std::bit_cast<float>(magnitude), 24));
    return {static_cast<uint16_t>(sign | static_cast<uint16_t>(count))};
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1);
  return {static_cast<uint16_t>(sign | ((rounded >> 13) - (112u << 10)))};
}

namespace {

// Bits of the mantissa, and the exponent of the smallest normal number.
struct Fp8Format {
  int mantissa;
  int least_exponent;
};
constexpr Fp8Format format_of(DType dtype) {
  return dtype == DType::F8E4M3 ? Fp8Format{3, -6} : Fp8Format{2, -14};
}

}  // namespace

float fp8_to_float(uint8_t bits, DType dtype) {
  const auto [mantissa_bits, least_exponent] = format_of(dtype);
  const int magnitude = bits & 0x7f, exponent = magnitude >> mantissa_bits;
  const int mantissa = magnitude & ((1 << mantissa_bits) - 1);
  float value = 0;
  if (dtype == DType::F8E5M2 && exponent == 31) {
    value = mantissa == 0 ? INFINITY : NAN;
  } else if (dtype == DType::F8E4M3 && magnitude == 0x7f) {
    value = NAN;
  } else if (exponent == 0) {
    value = std::ldexp(static_cast<float>(mantissa), least_exponent - mantissa_bits);
  } else {
    value = std::ldexp(static_cast<float>(mantissa + (1 << mantissa_bits)),
                       exponent - 1 + least_exponent - mantissa_bits);
  }
  return (bits & 0x80) != 0 ? -value : value;
}

uint8_t to_fp8(float x, DType dtype) {
  const auto [mantissa_bits, least_exponent] = format_of(dtype);
  const auto sign = static_cast<uint8_t>(std::signbit(x) ? 0x80 : 0);
  if (std::isnan(x)) return 0x7f;
  const float magnitude = std::min(std::fabs(x), largest_fp8(dtype));
  if (magnitude == 0) return sign;
  int exponent = 0;
  std::frexp(magnitude, &exponent);  // magnitude < 2^exponent
  // The value as a whole number of units in the last place, rounded to even: carries go into the exponent.
  const int unit = std::max(exponent - 1, least_exponent) - mantissa_bits;
  const int units = static_cast<int>(std::rint(std::ldexp(magnitude, -unit)));
  return static_cast<uint8_t>(sign | (units + ((unit + mantissa_bits - least_exponent) << mantissa_bits)));
}

}  // namespace tandem
