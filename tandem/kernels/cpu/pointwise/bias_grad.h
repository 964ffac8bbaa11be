// Sums over rows that do not depend on the number of threads. Rows are cut into chunks by shape alone; a
// chunk adds its rows in order into an fp32 partial in the workspace, and the partials are added in order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tandem/runtime/kernel.h"

namespace tandem::cpu {

// The cut of `rows` into at most 64 chunks of at least 16 rows.
struct RowChunks {
  explicit RowChunks(int64_t num_rows)
      : rows(num_rows),
        per_chunk(std::max<int64_t>(16, (num_rows + 63) / 64)),
        count((num_rows + per_chunk - 1) / per_chunk) {}
  int64_t begin(int64_t chunk) const { return chunk * per_chunk; }
  int64_t end(int64_t chunk) const { return std::min(rows, (chunk + 1) * per_chunk); }

  int64_t rows;
  int64_t per_chunk;
  int64_t count;
};

// dst = acc + the sum of `count` partials of acc's size, each `stride` floats after the last. acc may be
// f32, bf16 or f16, and may be dst.
void add_partials(const float* partials, int64_t count, int64_t stride, const TensorArg& acc,
                  const TensorArg& dst, Stream& stream);

// dst = acc + column sums of src, taken as [rows, acc elems].
size_t column_sums_workspace(int64_t rows, int64_t width);
void add_column_sums(const TensorArg& src, const TensorArg& acc, const TensorArg& dst,
                     std::span<std::byte> workspace, Stream& stream);

void add_bias_grad_kernels(KernelRegistry& registry);  // BiasGrad

}  // namespace tandem::cpu
