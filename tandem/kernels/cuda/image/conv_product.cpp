#include "tandem/kernels/cuda/image/conv_product.h"

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/kernels/cuda/image/patches.h"

namespace tandem::cuda {
namespace {

constexpr int64_t kPatchBytes = int64_t{64} << 20;  // of patches that are there at once

// Rows of y whose patches are made at once; all of them where x has them already.
int64_t rows_at_once(const ConvShape& s) {
  if (s.is_product()) return s.rows();
  return std::clamp<int64_t>(kPatchBytes / (s.patch() * dtype_bytes(s.type)), 1, s.rows());
}

// Images whose patches' gradients, which are f32, are made at once.
int64_t images_at_once(const ConvShape& s) {
  if (s.is_product()) return s.batch;
  const int64_t image_bytes = s.image_rows() * s.patch() * static_cast<int64_t>(sizeof(float));
  return std::clamp<int64_t>(kPatchBytes / image_bytes, 1, s.batch);
}

const std::byte* at(const void* tensor, int64_t elem, DType type) {
  return static_cast<const std::byte*>(tensor) + elem * dtype_bytes(type);
}
std::byte* at(void* tensor, int64_t elem, DType type) {
  return static_cast<std::byte*>(tensor) + elem * dtype_bytes(type);
}

// The patches of these rows: in x itself, or made behind the products' own scratch.
const void* patches_of(const ConvShape& s, const void* x, int64_t first, int64_t rows,
                       std::span<std::byte> workspace, cudaStream_t queue) {
  if (s.is_product()) return at(x, first * s.in, s.type);
  void* patches = workspace.data() + kGemmWorkspace;
  gather_patches(s, x, first, rows, patches, queue);
  return patches;
}

}  // namespace

size_t conv_product_workspace(const ConvShape& s) {
  if (s.is_product()) return kGemmWorkspace;
  return kGemmWorkspace + static_cast<size_t>(rows_at_once(s) * s.patch() * dtype_bytes(s.type));
}

size_t conv_product_grad_workspace(const ConvShape& s) {
  if (s.is_product()) return kGemmWorkspace;
  return kGemmWorkspace + static_cast<size_t>(images_at_once(s) * s.image_rows() * s.patch()) * sizeof(float);
}

void conv_product(const ConvShape& s, const ConvForward& tensors, Multiply multiply,
                  std::span<std::byte> workspace, cudaStream_t queue) {
  TANDEM_CHECK(workspace.size() >= conv_product_workspace(s), "{} bytes of workspace", workspace.size());
  for (int64_t first = 0; first < s.rows(); first += rows_at_once(s)) {
    const int64_t rows = std::min(rows_at_once(s), s.rows() - first);
    const Gemm gemm{.m = rows,
                    .n = s.out,
                    .k = s.patch(),
                    .trans_b = true,
                    .in = s.type,
                    .out = s.type,
                    .epilogue = tensors.bias != nullptr ? GemmEpilogue::Bias : GemmEpilogue::None};
    multiply(gemm,
             {.a = patches_of(s, tensors.x, first, rows, workspace, queue),
              .b = tensors.w,
              .d = at(tensors.y, first * s.out, s.type),
              .bias = const_cast<void*>(tensors.bias)},
             workspace.first(kGemmWorkspace), queue);
  }
}

void conv_product(const ConvShape& s, const ConvGradInput& tensors, Multiply multiply,
                  std::span<std::byte> workspace, cudaStream_t queue) {
  TANDEM_CHECK(workspace.size() >= conv_product_grad_workspace(s), "{} bytes of workspace", workspace.size());
  const int64_t image_elems = s.height * s.width * s.in;
  for (int64_t first = 0; first < s.batch; first += images_at_once(s)) {
    const int64_t images = std::min(images_at_once(s), s.batch - first);
    auto* patches = reinterpret_cast<float*>(workspace.data() + kGemmWorkspace);
    void* dx = at(tensors.dx, first * image_elems, s.type);
    const Gemm gemm{.m = images * s.image_rows(),
                    .n = s.patch(),
                    .k = s.out,
                    .in = s.type,
                    .out = s.is_product() ? s.type : DType::F32};
    multiply(gemm,
             {.a = at(tensors.dy, first * s.image_rows() * s.out, s.type),
              .b = tensors.w,
              .d = s.is_product() ? dx : patches},
             workspace.first(kGemmWorkspace), queue);
    if (!s.is_product()) collect_patches(s, patches, images, dx, queue);
  }
}

void conv_product(const ConvShape& s, const ConvGradWeight& tensors, Multiply multiply,
                  std::span<std::byte> workspace, cudaStream_t queue) {
  TANDEM_CHECK(workspace.size() >= conv_product_workspace(s), "{} bytes of workspace", workspace.size());
  for (int64_t first = 0; first < s.rows(); first += rows_at_once(s)) {
    const int64_t rows = std::min(rows_at_once(s), s.rows() - first);
    const Gemm gemm{.m = s.out,
                    .n = s.patch(),
                    .k = rows,
                    .trans_a = true,
                    .in = s.type,
                    .out = DType::F32,
                    .accumulate = !tensors.fresh || first > 0};
    multiply(gemm,
             {.a = at(tensors.dy, first * s.out, s.type),
              .b = patches_of(s, tensors.x, first, rows, workspace, queue),
              .d = tensors.acc},
             workspace.first(kGemmWorkspace), queue);
  }
}

}  // namespace tandem::cuda
