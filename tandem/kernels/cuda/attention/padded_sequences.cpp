#include "tandem/kernels/cuda/attention/padded_sequences.h"

#include <utility>

#include "tandem/kernels/cuda/device/cuda_check.h"
#include "tandem/kernels/cuda/library/scratch.h"

namespace tandem::cuda {
namespace {

size_t aligned_bytes(int64_t bytes) { return aligned(static_cast<size_t>(bytes)); }

size_t packed_bytes(const FusedAttention& s) {
  return aligned_bytes(s.batch * s.time * s.width() * dtype_bytes(s.type));
}
size_t output_bytes(const FusedAttention& s) {
  return aligned_bytes(s.batch * s.time * s.heads * s.head_dim * dtype_bytes(s.type));
}
size_t statistics_bytes(const FusedAttention& s) {
  return aligned_bytes(s.batch * s.time * s.heads * static_cast<int64_t>(sizeof(float)));
}

}  // namespace

size_t PaddedSlice::bytes(const FusedAttention& slice) {
  // qkv and its gradient, the output and its gradient; the scratch before it may end anywhere.
  return 2 * packed_bytes(slice) + 2 * output_bytes(slice) + statistics_bytes(slice) + kScratchAlignment;
}

PaddedSlice::PaddedSlice(const FusedAttention& slice, int64_t time, std::byte* scratch, cudaStream_t queue)
    : slice_(slice), time_(time), queue_(queue) {
  const auto next = [&](size_t bytes) { return std::exchange(scratch, scratch + bytes); };
  copies_.qkv = next(packed_bytes(slice));
  copies_.dqkv = next(packed_bytes(slice));
  copies_.out = next(output_bytes(slice));
  copies_.dout = next(output_bytes(slice));
  copies_.lse = next(statistics_bytes(slice));
}

PaddedSlice::Rows PaddedSlice::packed() const {
  return {slice_.batch, static_cast<size_t>(slice_.width() * dtype_bytes(slice_.type))};
}
PaddedSlice::Rows PaddedSlice::output() const {
  return {slice_.batch, static_cast<size_t>(slice_.heads * slice_.head_dim * dtype_bytes(slice_.type))};
}
PaddedSlice::Rows PaddedSlice::statistics() const { return {slice_.batch * slice_.heads, sizeof(float)}; }

void PaddedSlice::extend(const Rows& rows, const void* original, void* copy) const {
  const size_t row = static_cast<size_t>(time_) * rows.token_bytes;
  const size_t padded_row = static_cast<size_t>(slice_.time) * rows.token_bytes;
  const auto count = static_cast<size_t>(rows.count);
  check(cudaMemcpy2DAsync(copy, padded_row, original, row, row, count, cudaMemcpyDeviceToDevice, queue_),
        "padding sequences");
  check(
      cudaMemset2DAsync(static_cast<std::byte*>(copy) + row, padded_row, 0, padded_row - row, count, queue_),
      "padding sequences");
}

FusedAttentionGradTensors PaddedSlice::filled_from(const FusedAttentionGradTensors& originals) const {
  extend(packed(), originals.qkv, copies_.qkv);
  extend(output(), originals.out, copies_.out);
  extend(output(), originals.dout, copies_.dout);
  extend(statistics(), originals.lse, copies_.lse);
  return copies_;
}

void PaddedSlice::copy_gradient_to(const FusedAttentionGradTensors& originals) const {
  const Rows rows = packed();
  const size_t row = static_cast<size_t>(time_) * rows.token_bytes;
  const size_t padded_row = static_cast<size_t>(slice_.time) * rows.token_bytes;
  check(cudaMemcpy2DAsync(originals.dqkv, row, copies_.dqkv, padded_row, row, static_cast<size_t>(rows.count),
                          cudaMemcpyDeviceToDevice, queue_),
        "padding sequences");
}

}  // namespace tandem::cuda
