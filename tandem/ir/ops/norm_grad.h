// The gradient rule that all norms share.
#pragma once

#include "tandem/ir/ops/entry.h"

namespace tandem::ops {

// The gradient op takes dy, x, gamma, the statistics, then accumulators for gamma and, where there is one,
// beta.
template <Op kGradient, int kNumStats, bool kHasBeta>
void norm_grad(Context& c, int32_t id) {
  const std::vector<Value> in = c.node(id).inputs;
  std::vector<Value> inputs = {c.dy(id), in[0], in[1]};
  for (int i = 1; i <= kNumStats; ++i) inputs.push_back({id, i});
  inputs.push_back(c.accumulator(in[1]));
  if (kHasBeta) inputs.push_back(c.accumulator(in[2]));
  const Value dx = c.emit(kGradient, inputs, c.node(id).attrs);
  c.set_accumulator(in[1], {dx.node, 1});
  if (kHasBeta) c.set_accumulator(in[2], {dx.node, 2});
  c.add(in[0], dx);
}

}  // namespace tandem::ops
