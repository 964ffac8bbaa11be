// The fast loss kernels by family, and what they share.
#pragma once

#include "tandem/kernels/cpu/loss/cross_entropy_rows.h"
#include "tandem/runtime/kernel.h"

namespace tandem::cpu {

void add_cross_entropy_kernels(KernelRegistry& registry);  // CrossEntropy, CrossEntropyGrad
void add_linear_cross_entropy_kernels(
    KernelRegistry& registry);                          // LinearCrossEntropy, LinearCrossEntropyGrad
void add_vocab_loss_kernels(KernelRegistry& registry);  // VocabParts, VocabLoss, VocabLossGrad
void add_measure_kernels(KernelRegistry& registry);     // Measure

void store_loss(const LossSums& sums, const TensorArg& stats);

}  // namespace tandem::cpu
