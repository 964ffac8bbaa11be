#include "tandem/comm/sum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tandem/base/error.h"

namespace tandem {
namespace {

template <typename T>
std::byte* bytes_of(std::vector<T>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

template <typename Part, typename Dst>
void sum_one(std::vector<Part>& part, DType part_dtype, std::vector<Dst>& dst, DType dst_dtype) {
  dst.resize(part.size());
  const std::byte* parts[] = {bytes_of(part)};
  sum_parts(parts, part_dtype, bytes_of(dst), dst_dtype, static_cast<int64_t>(part.size()),
            SumInto::Overwrite);
}

TEST(Sum, WidensEveryHalfAsBaseDoes) {
  std::vector<uint16_t> halves(65536);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  std::vector<float> floats;
  sum_one(halves, DType::F16, floats, DType::F32);
  for (size_t i = 0; i < halves.size(); ++i) {
    const float expected = to_float(Half{halves[i]});
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(floats[i])) << i;
    } else {
      ASSERT_EQ(std::bit_cast<uint32_t>(expected), std::bit_cast<uint32_t>(floats[i])) << i;
    }
  }
}

TEST(Sum, RoundsTo16BitsAsBaseDoes) {
  std::vector<float> floats;
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 4091)
    floats.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  for (const float edge : {65519.0f, 65520.0f, 0x1p-14f, 0x1p-24f, 0x1p-25f, 0x1.8p-25f, -0.0f})
    floats.push_back(edge);
  std::vector<uint16_t> halves, brains;
  sum_one(floats, DType::F32, halves, DType::F16);
  sum_one(floats, DType::F32, brains, DType::BF16);
  for (size_t i = 0; i < floats.size(); ++i) {
    if (std::isnan(floats[i])) {
      ASSERT_TRUE(std::isnan(to_float(Half{halves[i]})) && std::isnan(to_float(BFloat16{brains[i]})));
    } else {
      ASSERT_EQ(to_half(floats[i]).bits, halves[i]) << floats[i];
      ASSERT_EQ(to_bfloat16(floats[i]).bits, brains[i]) << floats[i];
    }
  }
}

TEST(Sum, AddsInTheOrderOfThePartsAndRoundsOnce) {
  std::vector<float> a(1500, 1e8f), b(1500, 1.0f), c(1500, -1e8f), dst(1500, 5.0f);
  const std::byte* forward[] = {bytes_of(a), bytes_of(b), bytes_of(c)};
  sum_parts(forward, DType::F32, bytes_of(dst), DType::F32, 1500, SumInto::Overwrite);
  EXPECT_EQ(dst[1499], 0.0f);
  const std::byte* other[] = {bytes_of(a), bytes_of(c), bytes_of(b)};
  sum_parts(other, DType::F32, bytes_of(dst), DType::F32, 1500, SumInto::Overwrite);
  EXPECT_EQ(dst[1499], 1.0f);

  // 256 + 1 + 1 is 258 in fp32, a bf16 number; had each sum been rounded to bf16 it would have stayed 256.
  std::vector<uint16_t> x(3, to_bfloat16(256).bits), y(3, to_bfloat16(1).bits), z(3);
  const std::byte* brains[] = {bytes_of(x), bytes_of(y), bytes_of(y)};
  sum_parts(brains, DType::BF16, bytes_of(z), DType::BF16, 3, SumInto::Overwrite);
  EXPECT_EQ(to_float(BFloat16{z[2]}), 258.0f);
}

TEST(Sum, AccumulatesIntoAnotherType) {
  std::vector<uint16_t> part(5, to_bfloat16(0.5f).bits);
  std::vector<float> dst(5, 1e-3f);
  const std::byte* parts[] = {bytes_of(part), bytes_of(part)};
  sum_parts(parts, DType::BF16, bytes_of(dst), DType::F32, 5, SumInto::Add);
  for (const float x : dst) EXPECT_EQ(x, 1e-3f + 1.0f);
}

TEST(Sum, AddsEachPartInTurnToWhatIsThere) {
  std::vector<float> a(1500, 1.0f), b(1500, -1e8f), sum(1500, 1e8f), each = sum, in_turn = sum;
  const std::byte* parts[] = {bytes_of(a), bytes_of(b)};
  sum_parts(parts, DType::F32, bytes_of(sum), DType::F32, 1500, SumInto::Add);
  EXPECT_EQ(sum[1499], 0.0f);  // 1 - 1e8 is -1e8
  sum_parts(parts, DType::F32, bytes_of(each), DType::F32, 1500, SumInto::AddEach);
  for (const std::byte* part : parts)
    sum_parts({&part, 1}, DType::F32, bytes_of(in_turn), DType::F32, 1500, SumInto::Add);
  EXPECT_EQ(each, in_turn);
  std::vector<float> other(1500, 1e8f);
  const std::byte* back[] = {bytes_of(b), bytes_of(a)};
  sum_parts(back, DType::F32, bytes_of(other), DType::F32, 1500, SumInto::AddEach);
  EXPECT_EQ(other[1499], 1.0f);
}

TEST(Sum, RefusesTypesWithoutASum) {
  std::vector<uint16_t> part(4), dst(4);
  const std::byte* parts[] = {bytes_of(part)};
  EXPECT_THROW(sum_parts(parts, DType::U8, bytes_of(dst), DType::U8, 4, SumInto::Overwrite), BugError);
  EXPECT_THROW(sum_parts(parts, DType::F16, bytes_of(dst), DType::I32, 1, SumInto::Overwrite), BugError);
}

}  // namespace
}  // namespace tandem
