// Copies of a slice of attention's tensors whose sequences are longer than the originals', for an engine that
// takes only some lengths. What is appended is zero.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "tandem/kernels/cuda/attention/fused_attention.h"

namespace tandem::cuda {

class PaddedSlice {
 public:
  // Scratch for the copies of a slice, whose `time` is the padded one.
  static size_t bytes(const FusedAttention& slice);

  // `time` is the originals' length. The copies are in `scratch`, aligned to 256 bytes.
  PaddedSlice(const FusedAttention& slice, int64_t time, std::byte* scratch, cudaStream_t queue);

  // The copies, filled with a slice of the originals; the gradient's is for the engine to write.
  FusedAttentionGradTensors filled_from(const FusedAttentionGradTensors& originals) const;
  void copy_gradient_to(const FusedAttentionGradTensors& originals) const;

 private:
  // A tensor as rows of one sequence each, or of one sequence and head.
  struct Rows {
    int64_t count;
    size_t token_bytes;
  };
  Rows packed() const;
  Rows output() const;
  Rows statistics() const;
  void extend(const Rows& rows, const void* original, void* copy) const;

  FusedAttention slice_;
  int64_t time_;
  FusedAttentionGradTensors copies_;
  cudaStream_t queue_;
};

}  // namespace tandem::cuda
