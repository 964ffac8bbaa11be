// Products with few rows, for generation: what they cost is reading the weights, and they do it at the speed
// of memory. Sums have an order of their own, not that of gemm(); it depends on the inner extent and the
// instruction set only, so that bits are the same for any number of threads and whichever rows are computed
// together.
#pragma once

#include "tandem/kernels/cpu/gemm/gemm.h"

namespace tandem::cpu {

inline constexpr int64_t kGemvRows = 4;  // at most

// As gemm(), for a of at most kGemvRows rows without gaps between elements, b transposed ([n, k] in memory)
// and of a's type; nothing is accumulated.
size_t gemv_workspace(const GemmShape& shape);
void gemv(const GemmArgs& args, std::span<std::byte> workspace, ThreadPool& pool);

}  // namespace tandem::cpu
