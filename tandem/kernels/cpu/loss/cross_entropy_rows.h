// The softmax cross-entropy of rows of logits, in fp32 with the sums in double.
#pragma once

#include <cstdint>

#include "tandem/base/dtype.h"
#include "tandem/base/thread_pool.h"
#include "tandem/ir/loss_terms.h"

namespace tandem::cpu {

struct LossSums {
  double nll = 0;
  double correct = 0;
};

struct LogitRows {
  void* logits;
  DType dtype;  // F32, BF16 or F16
  int64_t rows;
  int64_t vocab;
  const int32_t* targets;             // -1 = ignored
  const int32_t* partners = nullptr;  // of a gradient: the other label of each row
  const float* shares = nullptr;      // of the target
};

// Targets come from data: refuses, as a bug of whoever bound them, any outside [-1, vocab).
void check_targets(const int32_t* targets, int64_t rows, int64_t vocab);

// How many LossSums of scratch the calls below need.
int64_t num_loss_partials(int64_t rows, int64_t vocab);

LossSums cross_entropy_rows(const LogitRows& in, LossSums* partials, ThreadPool& pool);

// Also overwrites the logits with their gradient, without terms (softmax - onehot) * scale, and rows that are
// ignored with zeros.
LossSums cross_entropy_rows_grad(const LogitRows& in, float scale, const LossTerms& terms, LossSums* partials,
                                 ThreadPool& pool);

}  // namespace tandem::cpu
