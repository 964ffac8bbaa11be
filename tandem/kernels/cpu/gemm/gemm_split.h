// fp32 products on AMX, which multiplies only bf16. An fp32 value is the sum of three bf16, each the nearest
// to what the ones before leave: x = x1 + x2 + x3, exactly. Of the nine products of parts, six are summed in
// fp32: all but x2 y3, x3 y2 and x3 y3, which together are below 2^-24 |x y|. Rounding is about half of that
// of a chain of fp32 multiply-adds, since a tile instruction sums 32 values of k before it adds to the tile;
// for operands that are badly scaled it is the same, give or take a tenth.
//
// The limits: AMX takes denormal numbers for zero, so that a value keeps an absolute error of up to 2^-126,
// and products below 2^-101 lose digits. A product with an infinity may be a NaN instead of an infinity,
// since the parts of the other factor may be zero; it is never finite. One within 1% of the largest number
// may overflow.
//
// A panel holds, for each 32 values of k, the three parts of 32 lines, a part being two tiles of 16 rows and
// 64 bytes. Tiles pair values that are 16 apart in k (0 and 16, 1 and 17, ...), so that a pair is made of two
// vectors without shuffling; any order serves, if A and B agree. A's parts come smallest first, B's largest
// first: the order of use.
#pragma once

#include <cstdint>

namespace tandem::cpu {

inline constexpr int64_t kSplitParts = 3;
inline constexpr int64_t kSplitDepth = 32;  // values of k in a tile
inline constexpr int64_t kSplitLines = 32;  // of two tiles
inline constexpr int64_t kSplitElemBytes = 2 * kSplitParts;
inline constexpr int64_t kSplitPartBytes = kSplitDepth * kSplitLines * 2;

}  // namespace tandem::cpu
