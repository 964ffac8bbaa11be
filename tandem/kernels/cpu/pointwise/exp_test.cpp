// The vectorised exp and tanh against the standard library's in double, over all of fp32's range.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tandem/kernels/cpu/pointwise/exp_test.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "tandem/kernels/cpu/pointwise/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {

float exp_of(float x) { return hn::GetLane(fast_exp(FloatTag(), hn::Set(FloatTag(), x))); }
float tanh_of(float x) { return hn::GetLane(fast_tanh(FloatTag(), hn::Set(FloatTag(), x))); }

}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem {
HWY_EXPORT(exp_of);
HWY_EXPORT(tanh_of);
namespace {

// The distance in units of the last place of the expected result.
double ulps(float actual, double expected) {
  if (std::isnan(expected)) return std::isnan(actual) ? 0 : 1e9;
  const float rounded = static_cast<float>(expected);
  if (actual == rounded) return 0;
  if (std::isinf(rounded) || !std::isfinite(actual)) return 1e9;
  const float size = std::abs(rounded);
  return std::abs(actual - expected) / (std::nextafter(size, std::numeric_limits<float>::infinity()) - size);
}

class Exp : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { choose(GetParam()); }
  void TearDown() override { choose(0); }  // 0: whatever the machine has

 private:
  static void choose(int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

TEST_P(Exp, IsWithinOneUnitInTheLastPlaceForEveryKindOfFloat) {
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 4099) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    ASSERT_LE(ulps(HWY_DYNAMIC_DISPATCH(exp_of)(x), std::exp(static_cast<double>(x))), 1.0) << x;
  }
  for (int i = -110'000; i < 90'000; ++i) {
    const float x = static_cast<float>(i) * 1e-3f;
    ASSERT_LE(ulps(HWY_DYNAMIC_DISPATCH(exp_of)(x), std::exp(static_cast<double>(x))), 1.0) << x;
  }
}

TEST_P(Exp, TanhIsWithinThreeUnitsInTheLastPlaceForEveryKindOfFloat) {
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 4099) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    ASSERT_LE(ulps(HWY_DYNAMIC_DISPATCH(tanh_of)(x), std::tanh(static_cast<double>(x))), 3.0) << x;
  }
  for (int i = -110'000; i < 110'000; ++i) {
    const float x = static_cast<float>(i) * 1e-4f;
    ASSERT_LE(ulps(HWY_DYNAMIC_DISPATCH(tanh_of)(x), std::tanh(static_cast<double>(x))), 3.0) << x;
  }
}

TEST_P(Exp, KeepsInfinitiesAndNan) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(HWY_DYNAMIC_DISPATCH(exp_of)(-infinity), 0.0f);
  EXPECT_EQ(HWY_DYNAMIC_DISPATCH(exp_of)(infinity), infinity);
  EXPECT_EQ(HWY_DYNAMIC_DISPATCH(exp_of)(0.0f), 1.0f);
  EXPECT_TRUE(std::isnan(HWY_DYNAMIC_DISPATCH(exp_of)(std::nanf(""))));
  EXPECT_EQ(HWY_DYNAMIC_DISPATCH(tanh_of)(-infinity), -1.0f);
  EXPECT_TRUE(std::isnan(HWY_DYNAMIC_DISPATCH(tanh_of)(std::nanf(""))));
}

INSTANTIATE_TEST_SUITE_P(Targets, Exp, testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& info) { return std::string(hwy::TargetName(info.param)); });

}  // namespace
}  // namespace tandem
#endif
