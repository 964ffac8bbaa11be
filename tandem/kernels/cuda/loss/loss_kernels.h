// The loss kernels by family, and what they share: a loss is one value a row in scratch memory, and the rows
// are summed in a fixed order at the end.
#pragma once

#include <cuda_runtime_api.h>

#include "tandem/ir/loss_terms.h"
#include "tandem/runtime/kernel.h"

namespace tandem::cuda {

void add_cross_entropy_kernels(KernelRegistry& registry);  // CrossEntropy, CrossEntropyGrad
void add_linear_cross_entropy_kernels(
    KernelRegistry& registry);                          // LinearCrossEntropy, LinearCrossEntropyGrad
void add_vocab_loss_kernels(KernelRegistry& registry);  // VocabParts, VocabLoss, VocabLossGrad
void add_stats_kernels(KernelRegistry& registry);       // AddStats, Measure

struct LogitRows {
  void* logits;
  DType dtype;
  int64_t rows;
  int64_t vocab;
  int64_t pitch;           // elements from a row to the next; what lies behind a row's logits is not touched
  const int32_t* targets;  // -1 = ignored; one that is no class makes the loss NaN
  LossTerms terms = {};    // where there is a scale
  const int32_t* partners = nullptr;  // and of two labels a row: the other one,
  const float* shares = nullptr;      // and the share of the target
};

struct alignas(16) RowLoss {
  double nll;
  double correct;
};

// The loss of each row. Given `scale`, also overwrites the logits with their gradient, without terms
// (softmax - onehot) * scale, and rows that are ignored with zeros.
void cross_entropy_rows(const LogitRows& in, const float* scale, RowLoss* losses, cudaStream_t queue);

void sum_losses(const RowLoss* losses, int64_t rows, double* stats, cudaStream_t queue);

}  // namespace tandem::cuda
