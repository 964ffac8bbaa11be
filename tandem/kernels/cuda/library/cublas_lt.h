// cuBLASLt, loaded when the first product needs it, and one product as the library describes it.
#pragma once

#include <cublasLt.h>

#include <memory>
#include <vector>

#include "tandem/kernels/cuda/gemm/gemm.h"

namespace tandem::cuda {

using Algorithm = cublasLtMatmulAlgo_t;

// Descriptors of a product. The library is column-major, where our D is D^T = op(B)^T op(A)^T: its A is our
// B, its B our A, and its rows our columns. So its bias per row is ours per column, and the sums over k of
// its B are those of our A.
class LtProduct {
 public:
  LtProduct(const Gemm& gemm, const GemmTensors& tensors);

  // At most `most` algorithms that give the same bits every time, in the library's order of preference. None
  // where it does not have this combination of types, shape, alignment and epilogue.
  std::vector<Algorithm> candidates(int most) const;
  // `like`, one of them, with settings that the library has but seldom suggests: what it accepts of them.
  std::vector<Algorithm> variants(const Algorithm& like) const;
  bool accepts(const Algorithm& algorithm) const;
  // Puts the product into the queue; false where the library refuses. `workspace` holds kGemmWorkspace bytes.
  bool run(const Algorithm& algorithm, void* workspace, cudaStream_t queue) const;

 private:
  struct Destroy {
    void operator()(cublasLtMatmulDescOpaque_t* descriptor) const;
    void operator()(cublasLtMatrixLayoutOpaque_t* descriptor) const;
    void operator()(cublasLtMatmulPreferenceOpaque_t* descriptor) const;
  };
  using Layout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, Destroy>;
  static Layout row_major(DType dtype, int64_t rows, int64_t cols, int64_t pitch = 0);

  Gemm gemm_;
  GemmTensors tensors_;
  std::unique_ptr<cublasLtMatmulDescOpaque_t, Destroy> operation_;
  Layout a_, b_, d_;  // ours
};

// The largest power of two, up to 16, that divides all addresses: what algorithms are chosen by.
int alignment_of(const GemmTensors& tensors);

size_t cublas_lt_version();

}  // namespace tandem::cuda
