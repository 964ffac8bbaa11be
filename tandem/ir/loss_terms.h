// What training may add to cross-entropy, as attributes of the ops that end its backward pass. With l the
// logits of a row, V of them, t its target and Z = log(sum(exp(l))), the loss of a row is
//   Z - (1 - smoothing) l[t] - smoothing mean(l) + z Z^2
// and its gradient softmax(l) (1 + 2 z Z) - (1 - smoothing) onehot(t) - smoothing / V.
// Evaluation has neither: its loss is the same whatever a run was trained with.
#pragma once

#include "tandem/ir/attrs.h"

namespace tandem {

struct LossTerms {
  double smoothing = 0;  // share of a target's probability that all classes get alike
  double z = 0;          // keeps Z near zero

  bool none() const { return smoothing == 0 && z == 0; }
  bool operator==(const LossTerms&) const = default;
};

inline LossTerms read_loss_terms(const Attrs& attrs) {
  return {attrs.real_or("smoothing", 0), attrs.real_or("z", 0)};
}

inline void write_loss_terms(const LossTerms& terms, Attrs& attrs) {
  if (terms.smoothing != 0) attrs.set("smoothing", terms.smoothing);
  if (terms.z != 0) attrs.set("z", terms.z);
}

}  // namespace tandem
