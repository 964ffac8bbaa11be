#include "tandem/kernels/cuda/attention/hopper_heads.cuh"

#include <cudaTypedefs.h>

#include <algorithm>
#include <cmath>

#include "tandem/kernels/cuda/device/cuda_check.h"

namespace tandem::cuda::hopper {

AttentionShape::AttentionShape(const FusedAttention& s)
    : batch(static_cast<int>(s.batch)),
      time(static_cast<int>(s.time)),
      heads(static_cast<int>(s.heads)),
      kv_heads(static_cast<int>(s.kv_heads)),
      causal(s.causal),
      scale(1.0f / std::sqrt(static_cast<float>(s.head_dim))) {}

CUtensorMap tile_map(const void* rows, DType type, const AttentionShape& shape, int width) {
  static const auto encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault,
                                           &found),
          "cuTensorMapEncodeTiled");
    if (found != cudaDriverEntryPointSuccess)
      throw DeviceError("cuda: the driver has no cuTensorMapEncodeTiled");
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
  }();
  const auto row_bytes = static_cast<cuuint64_t>(width * dtype_bytes(type));
  const cuuint64_t extents[] = {static_cast<cuuint64_t>(width), static_cast<cuuint64_t>(shape.time),
                                static_cast<cuuint64_t>(shape.batch)};
  const cuuint64_t strides[] = {row_bytes, row_bytes * static_cast<cuuint64_t>(shape.time)};
  const cuuint32_t box[] = {kTileSide, kTileSide, 1}, steps[] = {1, 1, 1};
  CUtensorMap map{};
  const CUresult status = encode(
      &map, type == DType::BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 3,
      const_cast<void*>(rows), extents, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS)
    throw DeviceError("cuda: cuTensorMapEncodeTiled: error {}", static_cast<int>(status));
  return map;
}

unsigned blocks_for(int pieces) {
  return static_cast<unsigned>(std::min(pieces, device_attribute(cudaDevAttrMultiProcessorCount)));
}

}  // namespace tandem::cuda::hopper
