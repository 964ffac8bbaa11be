// C = A B (+ C) (+ bias) (then GELU) for fp32, bf16 and fp16 matrices, with sums in fp32.
//
// Blocking, the order of every sum and the cut into tasks depend on shapes and instruction set only: an
// element of C has the same bits for any number of threads, from gemm() and from gemm_serial(), and
// whichever other rows or columns are computed with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tandem/base/dtype.h"
#include "tandem/base/thread_pool.h"
#include "tandem/kernels/cpu/cpu_features.h"

namespace tandem::cpu {

// Element (row, col) is data[row * row_stride + col * col_stride], strides in elements: a transpose is a
// view.
struct MatrixView {
  const void* data = nullptr;
  DType dtype = DType::F32;  // F32, BF16 or F16
  int64_t row_stride = 0;
  int64_t col_stride = 1;
};

struct GemmArgs {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  MatrixView a;  // m x k
  MatrixView b;  // k x n
  void* c = nullptr;
  DType c_dtype = DType::F32;
  int64_t ldc = 0;             // elements between rows of c (and of pre)
  bool accumulate = false;     // c += instead of c =; not together with bias or pre
  const void* bias = nullptr;  // n values of a's type added to every row, or null; c is of that type, or F32
  void* pre = nullptr;         // if set: pre = A B + bias in c's type, and c = gelu(pre as stored)
  Isa isa = selected_isa();
};

// What scratch memory depends on.
struct GemmShape {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  DType a = DType::F32;
  DType b = DType::F32;
  DType c = DType::F32;
  Isa isa = selected_isa();
};

// Bytes of workspace that a call needs (64-byte aligned).
size_t gemm_workspace(const GemmShape& shape, int num_threads);

void gemm(const GemmArgs& args, std::span<std::byte> workspace, ThreadPool& pool);

// On the calling thread only, for use inside a task: needs gemm_workspace(shape, 1) of its own.
void gemm_serial(const GemmArgs& args, std::span<std::byte> workspace);

}  // namespace tandem::cpu
