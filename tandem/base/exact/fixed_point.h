// Numbers that add up alike in any order: multiples of 2^-20. Sums of them are exact below 2^33, which is
// more than the losses of all targets of a batch.
#pragma once

#include <cmath>

namespace tandem {

inline double to_fixed_point(double x) { return std::nearbyint(x * 0x1p20) * 0x1p-20; }

}  // namespace tandem
