// Fused attention on the CPU: the T x T matrix of scores exists only as one block of 64 x 256 at a time. The
// sizes below do not depend on the instruction set, so that scratch can be sized before one is chosen.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tandem/runtime/kernel.h"

namespace tandem::cpu::attention {

inline constexpr int64_t kQueryBlock = 64;   // rows of a block of scores
inline constexpr int64_t kKeyBlock = 256;    // columns; a multiple of kQueryBlock, so that a causal block
                                             // starts at or before its first query
inline constexpr int64_t kQueryChunk = 512;  // queries of one forward task
inline constexpr int64_t kLineFloats = 16;   // a cache line, and the widest vector
static_assert(kKeyBlock % kQueryBlock == 0 && kQueryChunk % kQueryBlock == 0);

constexpr int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

// Rows of scratch matrices are an odd number of cache lines apart, so that a column of them spreads over
// all sets of the cache.
constexpr int64_t row_stride(int64_t columns) {
  const int64_t lines = (columns + kLineFloats - 1) / kLineFloats;
  return (lines | 1) * kLineFloats;
}
inline constexpr int64_t kScoreStride = row_stride(kKeyBlock);
inline constexpr int64_t kScoreElems = kQueryBlock * kScoreStride;

struct AttentionShape {
  int64_t batch;
  int64_t tokens;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  bool causal;
  int64_t window;  // a query sees this many keys at most; tokens where there is no window
  float scale;     // of scores
  float softcap;   // 0: none
  bool segmented;  // an input says which tokens belong together

  int64_t group() const { return heads / kv_heads; }  // query heads that share a key head
  int64_t qkv_stride() const { return (heads + 2 * kv_heads) * head_dim; }
  int64_t out_stride() const { return heads * head_dim; }
  int64_t key_offset(int64_t kv_head) const { return (heads + kv_head) * head_dim; }
  int64_t value_offset(int64_t kv_head) const { return (heads + kv_heads + kv_head) * head_dim; }
  // Keys that queries first .. last see lie in [first_key(first), end_key(last)).
  int64_t first_key(int64_t query) const { return causal ? std::max<int64_t>(0, query - window + 1) : 0; }
  int64_t end_key(int64_t query) const { return causal ? query + 1 : tokens; }

  // Scratch matrices, in floats.
  int64_t head_stride() const { return row_stride(head_dim); }
  int64_t key_blocks() const { return (tokens + kKeyBlock - 1) / kKeyBlock; }
  int64_t rows_elems() const { return key_blocks() * kKeyBlock * head_stride(); }      // [tokens, head_dim]
  int64_t transposed_elems() const { return key_blocks() * head_dim * kScoreStride; }  // a block at a time
  int64_t query_elems() const { return kQueryBlock * head_stride(); }
};

// Reads the shape from the type of qkv and the attributes.
AttentionShape attention_shape(const TensorType& qkv, const Attrs& attrs);

// True where qkv and the attributes fit together and the storage type is one the fast kernels know.
bool fast_attention_type(const TensorType& qkv, const Attrs& attrs);

void add_grad_kernel(KernelRegistry& registry);
void add_rope_kernels(KernelRegistry& registry);

}  // namespace tandem::cpu::attention
