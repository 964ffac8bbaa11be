// Storage types by policy. Arithmetic is fp32 everywhere (norms, softmax, loss, sums, optimizer); what the
// policy chooses is how tensors are stored, and with that which matrix instructions run.
//
// Changes: dtypes of parameters and activations; inserts a cast after an image input. Products that the ranks
//   of a tensor axis add up (and those that will be, as gradients of what they gather) become {wide: 1}.
// Keeps: the nodes, their order, statistics (fp32) and integer inputs.
#pragma once

#include "tandem/compile/pass_info.h"
#include "tandem/config/config.h"
#include "tandem/ir/graph.h"

namespace tandem {

inline constexpr PassInfo kPrecisionPass = {.name = "precision",
                                            .needs_before = {"model", "tensor", "stage"}};

struct PrecisionPolicy {
  DType storage = DType::F32;                        // weights and activations
  DType gradients = DType::F32;                      // accumulators
  DType block_gradients = DType::F32;                // of the matrices of blocks, where they are overwritten
  DType partial = DType::F32;                        // partial sums of the tensor axis: this, or storage
  bool fp8 = false;                                  // products of the blocks' matrices in 8 bits (fp8.h)
  int64_t loss_scale_window = 0;                     // good steps before the loss scale doubles; 0 = no scale
  bool masters() const { return is_half(storage); }  // fp32 weights are what is trained
  bool scales_loss() const { return loss_scale_window > 0; }
};

PrecisionPolicy precision_policy(Precision precision);

Graph apply_precision(const Graph& forward, const PrecisionPolicy& policy);

}  // namespace tandem
