#include "tandem/optimizers/packed_state.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tandem/base/rng.h"

namespace tandem {
namespace {

constexpr size_t kElems = 3 * kStateBlock + 77;

// Of magnitudes over 12 octaves; zero now and then.
std::vector<float> states(bool square) {
  const Rng rng(3, 1);
  std::vector<float> values(kElems);
  for (size_t i = 0; i < kElems; ++i) {
    const float x = std::ldexp(1 + rng.uniform(2 * i), -static_cast<int>(rng.below(2 * i + 1, 12)));
    values[i] = i % 19 == 0 ? 0 : square ? x * x : i % 2 == 0 ? x : -x;
  }
  return values;
}

struct Packed {
  std::vector<uint16_t> codes = std::vector<uint16_t>(kElems);
  std::vector<float> scales = std::vector<float>(4);
  bool operator==(const Packed&) const = default;
};
Packed pack(DType type, bool square, const std::vector<float>& values, uint64_t key) {
  Packed packed;
  pack_states(type, square, values, key, 0, packed.codes.data(), packed.scales.data());
  return packed;
}
std::vector<float> unpack(DType type, bool square, const Packed& packed) {
  std::vector<float> values(kElems);
  unpack_states(type, square, packed.codes.data(), packed.scales.data(), values);
  return values;
}

TEST(PackedState, StaysWithinAStepOfItsNumbers) {
  for (DType type : {DType::BF16, DType::U8}) {
    for (bool square : {false, true}) {
      const std::vector<float> values = states(square),
                               got = unpack(type, square, pack(type, square, values, 5));
      const double step = type == DType::BF16 ? 1.0 / 128 : square ? 2.0 / 16 + 1.0 / 256 : 1.0 / 8;
      for (size_t i = 0; i < kElems; ++i)
        EXPECT_NEAR(got[i], values[i], step * std::fabs(values[i])) << i << " square " << square;
    }
  }
}

// What a checkpoint has of them gives back the very codes, whatever the random bits.
TEST(PackedState, IsTheSameAgainAfterItWasRead) {
  for (DType type : {DType::BF16, DType::U8}) {
    for (bool square : {false, true}) {
      const Packed first = pack(type, square, states(square), 5);
      EXPECT_EQ(pack(type, square, unpack(type, square, first), 77), first);
    }
  }
}

TEST(PackedState, RoundsToTheValueOnAverage) {
  for (DType type : {DType::BF16, DType::U8}) {
    for (bool square : {false, true}) {
      std::vector<float> values(kElems, square ? 0.0049f : 0.0713f);
      values[0] = square ? 1.2f : 1.1f;
      double sum = 0;
      constexpr int kTimes = 40;
      for (int k = 0; k < kTimes; ++k) {
        const std::vector<float> got = unpack(type, square, pack(type, square, values, rounding_key(k, 0)));
        for (size_t i = 1; i < kStateBlock; ++i) sum += square ? std::sqrt(got[i]) : got[i];
      }
      const double mean = sum / kTimes / (kStateBlock - 1), want = square ? std::sqrt(0.0049) : 0.0713;
      EXPECT_NEAR(mean / want, 1, 1e-3) << "square " << square;
    }
  }
}

TEST(PackedState, LosesNoSquareAndKeepsZeros) {
  std::vector<float> values(kElems, 1e-20f);
  values[0] = 1;
  values[7] = 0;
  const std::vector<float> got = unpack(DType::U8, true, pack(DType::U8, true, values, 1));
  EXPECT_GT(got[3], 0);
  EXPECT_LT(got[3], 1e-8);
  EXPECT_EQ(got[7], 0);
}

TEST(PackedState, DoesNotDependOnWhereItIsCut) {
  const std::vector<float> values = states(false);
  const Packed whole = pack(DType::U8, false, values, 9);
  Packed parts;
  for (size_t begin = 0; begin < kElems; begin += kStateBlock) {
    const size_t elems = std::min<size_t>(kStateBlock, kElems - begin);
    pack_states(DType::U8, false, std::span(values).subspan(begin, elems), 9, begin,
                reinterpret_cast<uint8_t*>(parts.codes.data()) + begin, &parts.scales[begin / kStateBlock]);
  }
  EXPECT_EQ(whole, parts);
}

}  // namespace
}  // namespace tandem
