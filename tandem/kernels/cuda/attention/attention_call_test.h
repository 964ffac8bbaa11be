// Calls of the attention ops over one shape, for the tests of every kernel. Inputs are standard normals.
#pragma once

#include "tandem/kernels/cpu/attention/attention_case_test.h"
#include "tandem/kernels/cuda/kernel_test.h"

namespace tandem::cuda {

inline HostTensor segments_of(const cpu::AttentionCase& c) {
  HostTensor segments(DType::I32, {c.batch, c.tokens});
  const std::vector<double> values = c.segments();
  for (size_t i = 0; i < values.size(); ++i)
    segments.arg().as<int32_t>()[i] = static_cast<int32_t>(values[i]);
  return segments;
}

inline Call attention_call(const cpu::AttentionCase& c, double deviation = 1) {
  Call call{Op::Attention,
            {random_tensor(c.dtype, c.qkv().shape, 1, deviation)},
            {c.out(), c.lse()},
            {-1, -1},
            c.attrs()};
  if (c.segmented) call.in.push_back(segments_of(c));
  return call;
}

// Takes the output and log-sum-exp that the reference's forward pass gives.
inline Call attention_grad_call(const cpu::AttentionCase& c, double deviation = 1) {
  const Call forward = attention_call(c, deviation);
  const std::vector<HostTensor> made =
      cpu::run(cpu::reference_kernel(Op::Attention), forward, cpu::pool_of(1));
  Call call{Op::AttentionGrad,
            {random_tensor(c.dtype, c.out().shape, 2), forward.in[0], made[0], made[1]},
            {c.qkv()},
            {-1},
            c.attrs()};
  if (c.segmented) call.in.push_back(forward.in[1]);
  return call;
}

// Kernels for 16 bits round probabilities and gradients of scores to the storage type before they multiply by
// them; a sum of such terms is off by up to some units in the last place of its largest. In sequences of up
// to a hundred tokens or so a missing key, head or factor would show as 0.1 or more; of hundreds, one does
// not.
inline double attention_slack(DType storage) { return storage == DType::BF16 ? 0.03 : 0.004; }

}  // namespace tandem::cuda
