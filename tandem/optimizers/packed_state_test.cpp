#include "tandem/optimizers/packed_state.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tandem/base/rng.h"
#include "tandem/optimizers/optimizers.h"

namespace tandem {
namespace {

constexpr size_t kElems = 9 * kStateBlock + 17;

using Numbers = std::vector<float>;
// The two states of AdamW: a mean of squares over so many octaves, and a mean that is a share of its root.
struct Moments {
  Numbers mean = Numbers(kElems), square = Numbers(kElems);
};
Moments moments(int octaves) {
  const Rng rng(3, static_cast<uint64_t>(octaves));
  Moments all;
  for (size_t i = 0; i < kElems; ++i) {
    const auto octave = static_cast<int>(rng.below(3 * i, static_cast<uint64_t>(octaves)));
    const float root = i % 19 == 0 ? 0 : std::ldexp(1 + rng.uniform(3 * i + 1), -octave);
    all.square[i] = root * root;
    all.mean[i] = root * (2 * rng.uniform(3 * i + 2) - 1);
  }
  return all;
}

struct Packed {
  std::vector<std::byte> codes[2] = {std::vector<std::byte>(2 * kElems), std::vector<std::byte>(2 * kElems)};
  Numbers scales[2] = {Numbers(kElems), Numbers(kElems)};

  PackedStates states(DType type) {
    return {type, AdamW::kStates, {codes[0].data(), codes[1].data()}, {scales[0].data(), scales[1].data()}};
  }
};
Packed pack(DType type, const Moments& moments, int64_t step) {
  Packed packed;
  const float* const numbers[] = {moments.mean.data(), moments.square.data()};
  packed.states(type).pack(numbers, kElems, step, 0);
  return packed;
}
Moments unpack(DType type, Packed packed) {
  Moments moments;
  float* const numbers[] = {moments.mean.data(), moments.square.data()};
  packed.states(type).unpack(numbers, kElems);
  return moments;
}

TEST(PackedState, StaysWithinAStepOfItsNumbers) {
  for (DType type : {DType::BF16, DType::U8}) {
    for (int octaves : {3, 7, 12}) {
      const Moments want = moments(octaves), got = unpack(type, pack(type, want, 5));
      const double root_step = octaves == 3 ? 1.0 / 64 : octaves == 7 ? 1.0 / 32 : 1.0 / 16;
      const double square_step = type == DType::BF16 ? 1.0 / 128 : 2.1 * root_step;
      for (size_t i = 0; i < kElems; ++i) {
        EXPECT_NEAR(got.square[i], want.square[i], square_step * want.square[i]) << i << " of " << octaves;
        // Shares of what was rounded down may be above one, where steps are 1/32.
        const double root = std::sqrt(want.square[i]);
        EXPECT_NEAR(got.mean[i], want.mean[i], root * (1 + root_step) / 32) << i << " of " << octaves;
      }
    }
  }
}

// What a checkpoint has of them gives back the very numbers, whatever the random bits.
TEST(PackedState, IsTheSameAgainAfterItWasRead) {
  for (DType type : {DType::BF16, DType::U8}) {
    for (int octaves : {1, 2, 3, 4, 5, 7, 8, 9, 15, 17, 20}) {
      const Moments first = unpack(type, pack(type, moments(octaves), 5));
      const Moments again = unpack(type, pack(type, first, 77));
      EXPECT_EQ(again.square, first.square) << octaves;
      EXPECT_EQ(again.mean, first.mean) << octaves;
    }
  }
}

TEST(PackedState, RoundsToTheValueOnAverage) {
  for (DType type : {DType::BF16, DType::U8}) {
    Moments want;
    std::fill(want.square.begin(), want.square.end(), 0.0049f);
    std::fill(want.mean.begin(), want.mean.end(), -0.0131f);
    for (size_t i = 0; i < kElems; i += kStateBlock) want.square[i] = 1.2f, want.mean[i] = 1.3f;
    double roots = 0, means = 0, count = 0;
    for (int k = 0; k < 60; ++k) {
      const Moments got = unpack(type, pack(type, want, k));
      for (size_t i = 0; i < kElems; ++i) {
        if (i % kStateBlock == 0) continue;
        roots += std::sqrt(got.square[i]);
        means += got.mean[i];
        ++count;
      }
    }
    EXPECT_NEAR(roots / count / std::sqrt(0.0049), 1, 1e-3);
    EXPECT_NEAR(means / count / -0.0131, 1, 2e-3);
  }
}

TEST(PackedState, LosesNoSquareAndKeepsZeros) {
  Moments values;
  std::fill(values.square.begin(), values.square.end(), 1e-20f);
  values.square[0] = 1;
  values.square[7] = 0;
  const Moments got = unpack(DType::U8, pack(DType::U8, values, 1));
  EXPECT_GT(got.square[3], 0);
  EXPECT_LT(got.square[3], 1e-8);
  EXPECT_EQ(got.square[7], 0);
  EXPECT_EQ(got.mean[7], 0);
}

TEST(PackedState, PlainNumbersStayWithinAnEighthOverManyOctaves) {
  const Rng rng(3, 1);
  Numbers values(kElems), got(kElems), again(kElems), scales(kElems);
  for (size_t i = 0; i < kElems; ++i) {
    const float x = std::ldexp(1 + rng.uniform(2 * i), -static_cast<int>(rng.below(2 * i + 1, 12)));
    values[i] = i % 19 == 0 ? 0 : i % 2 == 0 ? x : -x;
  }
  std::vector<std::byte> codes(kElems);
  pack_states(DType::U8, Kept::Plain, values, {}, 5, 0, codes.data(), scales.data());
  unpack_states(DType::U8, Kept::Plain, codes.data(), scales.data(), {}, got);
  for (size_t i = 0; i < kElems; ++i) EXPECT_NEAR(got[i], values[i], std::fabs(values[i]) / 8) << i;
  pack_states(DType::U8, Kept::Plain, got, {}, 77, 0, codes.data(), scales.data());
  unpack_states(DType::U8, Kept::Plain, codes.data(), scales.data(), {}, again);
  EXPECT_EQ(again, got);
}

TEST(PackedState, DoesNotDependOnWhereItIsCut) {
  const Moments values = moments(7);
  const Packed whole = pack(DType::U8, values, 9);
  Packed parts;
  for (int64_t begin = 0; begin < static_cast<int64_t>(kElems); begin += 2 * kStateBlock) {
    const int64_t elems = std::min<int64_t>(2 * kStateBlock, static_cast<int64_t>(kElems) - begin);
    const float* const numbers[] = {values.mean.data() + begin, values.square.data() + begin};
    parts.states(DType::U8).from(begin).pack(numbers, elems, 9, static_cast<uint64_t>(begin));
  }
  for (int s = 0; s < 2; ++s) {
    EXPECT_EQ(whole.codes[s], parts.codes[s]);
    EXPECT_EQ(whole.scales[s], parts.scales[s]);
  }
}

}  // namespace
}  // namespace tandem
