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

TEST(DType, NamesParseBack) {
  for (DType dtype : {DType::F32, DType::BF16, DType::F16, DType::F64, DType::I32, DType::I16, DType::U8}) {
    EXPECT_EQ(parse_dtype(dtype_name(dtype)), dtype);
  }
  EXPECT_THROW(parse_dtype("float"), ConfigError);
}

}  // namespace
}  // namespace tandem
