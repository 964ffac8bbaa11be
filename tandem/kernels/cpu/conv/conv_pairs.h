// Convolutions of bf16 where the CPU has AVX512_BF16: one instruction multiplies two neighbours by two
// weights and adds both products to an fp32 sum. Neighbours are those of a run in the forward pass, and two
// pixels of an output row in the weight gradient; both lie side by side in 32 bits, a pair.
#pragma once

#include <cstdint>

#include "tandem/kernels/cpu/conv/conv_tile.h"

namespace tandem::cpu {

bool conv_uses_pairs(DType dtype);

// conv_tile over patches of bf16: `run` counts pairs, `row_pitch` bf16 values, `weights` are pairs. A pair
// that is half beyond the run has a weight of zero there, and the patch has to hold some number.
void conv_pair_tile(const ConvTileArgs& args);

// conv_grad_tile where x and dy are pairs of pixels; `cols` counts pairs, pitches count 32 bits.
void conv_pair_grad_tile(const ConvGradTileArgs& args);

// dst[i] = (lo[i], hi[i]), bf16 each; without `hi`, zero.
void conv_make_pairs(const void* lo, const void* hi, int64_t count, float* dst);

}  // namespace tandem::cpu
