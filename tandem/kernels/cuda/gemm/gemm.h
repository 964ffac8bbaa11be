// Matrix products through cuBLASLt, for the kernels that need one: row-major, D = op(A) op(B) [+ D] with an
// epilogue, of any shape and alignment. How each is run (which of the library's algorithms, and the epilogue
// inside it or as a pass of ours after it) is chosen once, in prepare, by timing the alternatives, and is
// remembered on disk for this GPU and library version.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "tandem/base/dtype.h"

namespace tandem::cuda {

enum class GemmEpilogue {
  None,
  Bias,           // + bias[n], a value a column of D
  GeluBias,       // aux = product + bias, stored; D = gelu(aux)
  GeluGrad,       // D = product * gelu'(aux), where aux was stored by GeluBias
  ColumnSumsOfA,  // bias[m] = sums over k of op(A)[m, k], or += where D is accumulated too: the bias gradient
                  // beside the weight gradient. A is stored [k, m].
};

struct Gemm {
  int64_t m = 0, n = 0, k = 0;
  bool trans_a = false, trans_b = false;  // A is [m,k], or stored [k,m]; B is [k,n], or stored [n,k]
  DType in = DType::F32;                  // of A and B
  DType out = DType::F32;                 // of D: `in`, or f32; bf16 or f32 where `in` is an 8-bit float
  bool accumulate = false;                // D += product
  GemmEpilogue epilogue = GemmEpilogue::None;
  std::optional<DType> in_b = std::nullopt;  // of B, where it is not `in`: both are 8-bit floats then
  int64_t pitch_a = 0;  // elements from a stored row of A to the next; 0: rows lie without gaps

  bool operator==(const Gemm&) const = default;
};

struct GemmTensors {
  const void* a = nullptr;
  const void* b = nullptr;
  void* d = nullptr;
  void* bias = nullptr;            // as `in` (`out` with 8-bit operands), f32 for ColumnSumsOfA
  void* aux = nullptr;             // [m, n], in the type `in`
  const float* scale_a = nullptr;  // of 8-bit operands, which are multiplied by it; aligned to 16 bytes
  const float* scale_b = nullptr;
};

// Scratch that every product may use; with ColumnSumsOfA gemm_workspace() asks for a little more.
inline constexpr size_t kGemmWorkspace = size_t{64} << 20;
size_t gemm_workspace(const Gemm& gemm);

// Whether types and epilogue go together: D is of the type `in`, or f32 with None, Bias and ColumnSumsOfA.
// 8-bit operands are both stored along k, in multiples of 16, with None or Bias. Gaps between rows go with
// None.
bool gemm_supported(const Gemm& gemm);

// Chooses the algorithm; overwrites D and what the epilogue writes, and waits for the queue.
void gemm_prepare(const Gemm& gemm, const GemmTensors& tensors, std::span<std::byte> workspace,
                  cudaStream_t queue);
// A product that was not prepared takes the library's first suggestion.
void gemm_run(const Gemm& gemm, const GemmTensors& tensors, std::span<std::byte> workspace,
              cudaStream_t queue);

}  // namespace tandem::cuda
