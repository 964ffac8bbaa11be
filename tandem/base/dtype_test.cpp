#include "tandem/base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tandem/base/error.h"

namespace tandem {
namespace {

TEST(BFloat16, RoundsToNearestEven) {
  EXPECT_EQ(to_bfloat16(1.0f).bits, 0x3f80);
  EXPECT_EQ(to_bfloat16(1.0f + 0x1p-8f).bits, 0x3f80) << "half way: to even";
  EXPECT_EQ(to_bfloat16(1.0f + 0x1.8p-7f).bits, 0x3f82) << "half way: to even";
  EXPECT_EQ(to_bfloat16(1.0f + 0x1.1p-8f).bits, 0x3f81);
}

TEST(BFloat16, KeepsEveryValueItCanHold) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const BFloat16 x{static_cast<uint16_t>(bits)};
    if (std::isnan(to_float(x))) {
      EXPECT_TRUE(std::isnan(to_float(to_bfloat16(to_float(x)))));
    } else {
      EXPECT_EQ(to_bfloat16(to_float(x)).bits, bits);
    }
  }
}

TEST(Half, KeepsEveryValueItCanHold) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Half x{static_cast<uint16_t>(bits)};
    if (std::isnan(to_float(x))) {
      EXPECT_TRUE(std::isnan(to_float(to_half(to_float(x)))));
    } else {
      EXPECT_EQ(to_half(to_float(x)).bits, bits);
    }
  }
}

TEST(Half, RoundsOverflowsAndUnderflowsAsIeeeSays) {
  EXPECT_EQ(to_half(65504.0f).bits, 0x7bff) << "largest";
  EXPECT_EQ(to_half(65519.0f).bits, 0x7bff);
  EXPECT_EQ(to_half(65520.0f).bits, 0x7c00) << "rounds to infinity";
  EXPECT_EQ(to_half(-std::numeric_limits<float>::infinity()).bits, 0xfc00);
  EXPECT_EQ(to_half(0x1p-24f).bits, 0x0001) << "smallest";
  EXPECT_EQ(to_half(0x1p-25f).bits, 0x0000) << "half of it: to even";
  EXPECT_EQ(to_half(1.0f + 0x1p-11f).bits, 0x3c00) << "half way: to even";
}

TEST(Fp8, KeepsEveryValueItCanHold) {
  for (DType dtype : {DType::F8E4M3, DType::F8E5M2}) {
    for (int bits = 0; bits < 256; ++bits) {
      const float value = fp8_to_float(static_cast<uint8_t>(bits), dtype);
      if (std::isfinite(value)) {
        EXPECT_EQ(to_fp8(value, dtype), bits) << dtype_name(dtype);
      }
    }
  }
  EXPECT_EQ(fp8_to_float(0x7e, DType::F8E4M3), kLargestE4M3);
  EXPECT_EQ(fp8_to_float(0x7b, DType::F8E5M2), kLargestE5M2);
}

TEST(Fp8, RoundsToEvenAndStopsAtTheLargest) {
  EXPECT_EQ(fp8_to_float(to_fp8(1.0625f, DType::F8E4M3), DType::F8E4M3), 1.0f) << "half way: to even";
  EXPECT_EQ(fp8_to_float(to_fp8(1.1875f, DType::F8E4M3), DType::F8E4M3), 1.25f) << "half way: to even";
  EXPECT_EQ(fp8_to_float(to_fp8(1.99f, DType::F8E5M2), DType::F8E5M2), 2.0f) << "carries into the exponent";
  EXPECT_EQ(to_fp8(0x1p-9f, DType::F8E4M3), 0x01) << "smallest";
  EXPECT_EQ(to_fp8(0x1p-10f, DType::F8E4M3), 0x00) << "half of it: to even";
  EXPECT_EQ(to_fp8(1e9f, DType::F8E4M3), 0x7e);
  EXPECT_EQ(to_fp8(-std::numeric_limits<float>::infinity(), DType::F8E5M2), 0xfb);
  EXPECT_TRUE(std::isnan(fp8_to_float(to_fp8(NAN, DType::F8E4M3), DType::F8E4M3)));
  EXPECT_TRUE(std::isnan(fp8_to_float(to_fp8(NAN, DType::F8E5M2), DType::F8E5M2)));
}

TEST(DType, NamesParseBack) {
  for (DType dtype : {DType::F32, DType::BF16, DType::F16, DType::F64, DType::I32, DType::I16, DType::U8,
                      DType::F8E4M3, DType::F8E5M2}) {
    EXPECT_EQ(parse_dtype(dtype_name(dtype)), dtype);
  }
  EXPECT_THROW(parse_dtype("float"), ConfigError);
}

}  // namespace
}  // namespace tandem
