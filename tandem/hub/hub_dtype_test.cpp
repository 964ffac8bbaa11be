#include "tandem/hub/hub_dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <numeric>

namespace tandem::hub {
namespace {

TEST(HubDtype, EveryHalfWidensToItsNumber) {
  std::vector<uint16_t> halves(1 << 16);
  std::iota(halves.begin(), halves.end(), 0);
  std::vector<float> found(halves.size());
  to_floats(std::as_bytes(std::span(halves)).data(), DType::F16, found);
  for (size_t i = 0; i < halves.size(); ++i) {
    const float wanted = to_float(Half{halves[i]});
    ASSERT_EQ(std::bit_cast<uint32_t>(wanted), std::bit_cast<uint32_t>(found[i])) << "bits " << i;
  }
}

TEST(HubDtype, EveryBfloat16WidensToItsNumberAndBack) {
  std::vector<uint16_t> bits(1 << 16);
  std::iota(bits.begin(), bits.end(), 0);
  std::vector<float> found(bits.size());
  to_floats(std::as_bytes(std::span(bits)).data(), DType::BF16, found);
  for (size_t i = 0; i < bits.size(); ++i)
    ASSERT_EQ(uint32_t{bits[i]} << 16, std::bit_cast<uint32_t>(found[i]));
}

}  // namespace
}  // namespace tandem::hub
