// What the memory-bound kernels share: the choice of a storage type, and the cut of a tensor into tasks.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tandem/base/error.h"
#include "tandem/runtime/kernel.h"
#include "tandem/runtime/storage.h"

namespace tandem::cpu {

// Calls fn with a value of the C++ type of `dtype`, which must be f32, bf16 or f16.
template <typename Fn>
void with_storage(DType dtype, Fn&& fn) {
  switch (dtype) {
    case DType::F32: return fn(float());
    case DType::BF16: return fn(BFloat16());
    case DType::F16: return fn(Half());
    default: TANDEM_CHECK(false, "type {}", dtype_name(dtype));
  }
}

// A task's share of a tensor: small enough to balance and to stay in the nearest caches, large enough to
// hide the cost of a task. A multiple of every vector length, so that only the tensor's end is ragged.
inline constexpr int64_t kElemsPerTask = 16384;

// fn(begin, end, worker) over fixed pieces of [0, elems).
template <typename Fn>
void for_pieces(ThreadPool& pool, int64_t elems, int64_t piece, const Fn& fn) {
  pool.parallel_for((elems + piece - 1) / piece, [&](int64_t task, int worker) {
    fn(task * piece, std::min(elems, (task + 1) * piece), worker);
  });
}

// fn(first_row, last_row, worker) over groups of rows that hold about kElemsPerTask elements.
template <typename Fn>
void for_row_groups(ThreadPool& pool, int64_t rows, int64_t width, const Fn& fn) {
  for_pieces(pool, rows, std::max<int64_t>(1, kElemsPerTask / std::max<int64_t>(1, width)), fn);
}

// The fast kernels of scale, softcap and its gradient, for kernels that do these in between. In place too.
void scale_values(const TensorArg& x, double factor, const TensorArg& y, Stream& stream);
void cap_values(const TensorArg& x, double cap, const TensorArg& y, Stream& stream);
void cap_values_grad(const TensorArg& dy, const TensorArg& x, double cap, const TensorArg& dx,
                     Stream& stream);

}  // namespace tandem::cpu
