#include "tandem/base/exact/exact_squares.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "tandem/base/error.h"

namespace tandem {
namespace {

using Wide = unsigned __int128;

constexpr int kUnit = -298;            // the exponent of the first limb's unit
constexpr size_t kMostAtOnce = 16384;  // squares of 48 bits that a bucket of 64 holds
constexpr uint64_t kLimbMask = 0xffffffff;

}  // namespace

void ExactSquares::add(std::span<const float> values) {
  while (!values.empty()) {
    const size_t count = std::min(values.size(), kMostAtOnce);
    add_some(values.first(count));
    values = values.subspan(count);
  }
  carry();
}

// Numbers of one exponent have a bucket, where their 24 bits are squared and added. Neighbours often have the
// same one; with buckets in turn they need not wait for each other.
void ExactSquares::add_some(std::span<const float> values) {
  constexpr size_t kTurns = 4, kExponents = 256;
  uint64_t buckets[kTurns][kExponents] = {};
  const auto put = [&](size_t turn, float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value), exponent = bits >> 23 & 0xff;
    const uint64_t digits = (bits & 0x7fffff) | (exponent != 0 ? 0x800000u : 0u);
    buckets[turn][exponent] += digits * digits;
  };
  size_t i = 0;
  for (; i + kTurns <= values.size(); i += kTurns) {
    for (size_t turn = 0; turn < kTurns; ++turn) put(turn, values[i + turn]);
  }
  for (; i < values.size(); ++i) put(0, values[i]);
  for (size_t exponent = 0; exponent < kExponents; ++exponent) {
    uint64_t sum = 0;
    for (const auto& turn : buckets) sum += turn[exponent];
    if (sum == 0) continue;
    if (exponent == kExponents - 1) {
      has_other_ = true;
      continue;
    }
    const size_t place = 2 * (std::max<size_t>(exponent, 1) - 1), limb = place / 32;
    const Wide shifted = static_cast<Wide>(sum) << (place % 32);
    for (size_t part = 0; part < 3; ++part)
      limbs_[limb + part] += static_cast<uint64_t>(shifted >> (32 * part)) & kLimbMask;
  }
}

void ExactSquares::add(const ExactSquares& other) {
  for (size_t i = 0; i < kLimbs; ++i) limbs_[i] += other.limbs_[i];
  has_other_ |= other.has_other_;
  carry();
}

void ExactSquares::carry() {
  for (size_t i = 0; i + 1 < kLimbs; ++i) {
    limbs_[i + 1] += limbs_[i] >> 32;
    limbs_[i] &= kLimbMask;
  }
}

void ExactSquares::write(std::span<double> limbs) const {
  for (size_t i = 0; i < kLimbs; ++i) limbs[i] = static_cast<double>(limbs_[i]);
}

double ExactSquares::total(std::span<const double> limbs) {
  TANDEM_CHECK(limbs.size() == kLimbs);
  ExactSquares sum;
  for (size_t i = 0; i < kLimbs; ++i) sum.limbs_[i] = static_cast<uint64_t>(limbs[i]);
  sum.carry();
  size_t top = kLimbs - 1;
  while (top > 2 && sum.limbs_[top] == 0) --top;
  Wide leading = 0;  // at least 65 bits of it where there are as many: enough for a double
  for (size_t i = 0; i < 3; ++i) leading = leading << 32 | sum.limbs_[top - i];
  return std::ldexp(static_cast<double>(leading), 32 * (static_cast<int>(top) - 2) + kUnit);
}

double ExactSquares::total_of_all(std::span<const double> limbs) {
  TANDEM_CHECK(limbs.size() % kLimbs == 0);
  double all[kLimbs] = {};
  for (size_t i = 0; i < limbs.size(); ++i) all[i % kLimbs] += limbs[i];
  return total(all);
}

}  // namespace tandem
