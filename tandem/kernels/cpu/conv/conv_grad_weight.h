// The weight gradient as sums of outer products over zero-padded patches.
#pragma once

#include <cstddef>
#include <span>

#include "tandem/base/thread_pool.h"
#include "tandem/kernels/cpu/conv/conv_patch.h"

namespace tandem::cpu {

size_t conv_grad_weight_workspace(const ConvGeometry& conv, DType dtype, int num_threads);

// acc[o][r][q][c] += sum over pixels p of dy[p][o] * x[p * stride - pad + (r, q)][c]
void conv_grad_weight(const ConvGeometry& conv, const void* x, const void* dy, DType dtype, float* acc,
                      std::span<std::byte> workspace, ThreadPool& pool);

}  // namespace tandem::cpu
