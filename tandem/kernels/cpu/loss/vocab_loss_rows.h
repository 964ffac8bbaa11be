// Cross-entropy where each of `size` ranks holds some columns of the logits: what a rank has to say of a row,
// and what all of them say together.
#pragma once

#include "tandem/kernels/cpu/loss/cross_entropy_rows.h"

namespace tandem::cpu {

// A row of the `parts` tensors; ids are exact up to kMaxVocabId.
struct VocabPart {
  float largest;
  float sum;     // of exp(logit - largest)
  float target;  // its logit, or -inf where another rank holds it
  float id;      // of the first of the largest
};
static_assert(sizeof(VocabPart) == 4 * sizeof(float));
inline constexpr int64_t kMaxVocabId = int64_t{1} << 24;

// `size` parts for each row: rank by rank, all rows of one before those of the next.
struct VocabParts {
  const VocabPart* parts;
  int64_t size;
  int64_t rows;
  const int32_t* targets;  // -1 = ignored
};

// The ids of a rank's columns; columns behind them are padding.
struct VocabShard {
  int64_t first;
  int64_t size;
  bool contains(int64_t id) const { return id >= first && id < first + size; }
};

void describe_vocab_rows(const LogitRows& in, VocabShard shard, VocabPart* parts, ThreadPool& pool);

// The same bits on every rank: it depends on nothing but the parts.
int64_t num_vocab_loss_partials(int64_t rows);  // scratch
LossSums vocab_loss(const VocabParts& in, LossSums* partials, ThreadPool& pool);

// Overwrites the logits with (softmax - onehot) * scale; padding, and rows that are ignored, with zeros.
void vocab_loss_grad(const LogitRows& logits, VocabShard shard, const VocabParts& in, float scale,
                     ThreadPool& pool);

}  // namespace tandem::cpu
