// Convolutions of 16-bit tensors by cuDNN's engines: those that sum in a fixed order, in f32. Which one runs
// is the library's first proposal that is such a one and that the scratch suffices for, so that two runs on
// the same GPU choose alike.
#pragma once

#include <cuda_runtime_api.h>

#include <span>

#include "tandem/kernels/cuda/image/conv_shape.h"
#include "tandem/kernels/cuda/library/cudnn_graph.h"

namespace tandem::cuda {

enum class ConvPass : uint8_t { Forward, GradInput, GradWeight };

// An engine's own scratch: one that wants more is not chosen.
inline constexpr size_t kConvEngineBytes = size_t{128} << 20;
size_t conv_engine_workspace(const ConvShape& shape, ConvPass pass);

// False where the library is absent or has no such engine, or where an address is no multiple of 16 bytes;
// nothing was done then. The first call of a pass and shape looks for the engine, which cannot be done while
// a CUDA graph is captured. Without a bias.
bool run_conv_engine(const ConvShape& shape, const ConvForward& tensors, std::span<std::byte> workspace,
                     cudaStream_t queue);
bool run_conv_engine(const ConvShape& shape, const ConvGradInput& tensors, std::span<std::byte> workspace,
                     cudaStream_t queue);
bool run_conv_engine(const ConvShape& shape, const ConvGradWeight& tensors, std::span<std::byte> workspace,
                     cudaStream_t queue);

// The graph, not yet finalized. In memory are x, w, y; dy, w, dx; or x, dy, dw, each of the storage type.
cudnn::Graph conv_graph(const ConvShape& shape, ConvPass pass);
// Whether an engine with these notes gives the same bits every time, with sums in f32.
bool is_exact_engine(std::span<const cudnnBackendNumericalNote_t> notes);

}  // namespace tandem::cuda
