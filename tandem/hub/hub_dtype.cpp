#include "tandem/hub/hub_dtype.h"

#include <bit>
#include <cstring>

#include "tandem/base/error.h"

namespace tandem::hub {
namespace {

struct FormatType {
  std::string_view name;
  int64_t bits;
};

constexpr FormatType kFormatTypes[] = {
    {"BOOL", 8},        {"U8", 8},      {"I8", 8},    {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"F8_E8M0", 8}, {"F4", 4},    {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"I16", 16},
    {"U16", 16},        {"F16", 16},    {"BF16", 16}, {"I32", 32},    {"U32", 32},    {"F32", 32},
    {"F64", 64},        {"I64", 64},    {"U64", 64},  {"C64", 64},
};

struct WeightType {
  DType dtype;
  std::string_view safetensors, torch;
};

constexpr WeightType kWeightTypes[] = {
    {DType::F64, "F64", "float64"},
    {DType::F32, "F32", "float32"},
    {DType::F16, "F16", "float16"},
    {DType::BF16, "BF16", "bfloat16"},
};

const WeightType& entry_of(DType dtype) {
  for (const WeightType& type : kWeightTypes) {
    if (type.dtype == dtype) return type;
  }
  TANDEM_CHECK(false, "{} is no weight's type", dtype_name(dtype));
  return kWeightTypes[0];
}

template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

template <typename T, typename Convert>
void convert_all(const std::byte* src, std::span<float> dst, Convert convert) {
  for (size_t i = 0; i < dst.size(); ++i) dst[i] = convert(load<T>(src + i * sizeof(T)));
}

template <typename T, typename Convert>
void store_all(std::span<const float> src, std::byte* dst, Convert convert) {
  for (size_t i = 0; i < src.size(); ++i) {
    const T value = convert(src[i]);
    std::memcpy(dst + i * sizeof(T), &value, sizeof(T));
  }
}

// As to_float(Half), in operations that a compiler makes vectors of: a half's exponent is 112 less, which a
// product mends exactly, for subnormal numbers too. Infinities and NaNs have the largest exponent.
float widened(Half x) {
  const uint32_t magnitude = static_cast<uint32_t>(x.bits & 0x7fffu) << 13;
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16;
  const auto finite = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f);
  const uint32_t special = magnitude | 0x7f800000u;
  return std::bit_cast<float>(sign | (magnitude < 0x0f800000u ? finite : special));
}

}  // namespace

std::optional<int64_t> bits_of(std::string_view name) {
  for (const FormatType& type : kFormatTypes) {
    if (type.name == name) return type.bits;
  }
  return std::nullopt;
}

std::optional<DType> weight_dtype(std::string_view name) {
  for (const WeightType& type : kWeightTypes) {
    if (type.safetensors == name) return type.dtype;
  }
  return std::nullopt;
}

std::string_view safetensors_name(DType dtype) { return entry_of(dtype).safetensors; }
std::string_view torch_name(DType dtype) { return entry_of(dtype).torch; }

std::optional<DType> parse_torch_dtype(std::string_view name) {
  constexpr std::string_view kPrefix = "torch.";
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  for (const WeightType& type : kWeightTypes) {
    if (type.torch == name) return type.dtype;
  }
  return std::nullopt;
}

void to_floats(const std::byte* src, DType dtype, std::span<float> dst) {
  switch (dtype) {
    case DType::F32: std::memcpy(dst.data(), src, dst.size_bytes()); return;
    case DType::BF16: return convert_all<BFloat16>(src, dst, [](BFloat16 x) { return to_float(x); });
    case DType::F16: return convert_all<Half>(src, dst, widened);
    case DType::F64: return convert_all<double>(src, dst, [](double x) { return static_cast<float>(x); });
    default: TANDEM_CHECK(false, "{} is no weight's type", dtype_name(dtype));
  }
}

void from_floats(std::span<const float> src, DType dtype, std::byte* dst) {
  switch (dtype) {
    case DType::F32: std::memcpy(dst, src.data(), src.size_bytes()); return;
    case DType::BF16: return store_all<BFloat16>(src, dst, [](float x) { return to_bfloat16(x); });
    case DType::F16: return store_all<Half>(src, dst, [](float x) { return to_half(x); });
    case DType::F64: return store_all<double>(src, dst, [](float x) { return static_cast<double>(x); });
    default: TANDEM_CHECK(false, "{} is no weight's type", dtype_name(dtype));
  }
}

}  // namespace tandem::hub
