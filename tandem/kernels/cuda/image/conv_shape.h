// A convolution of NHWC images: x[batch,height,width,in] with w[out,kernel,kernel,in] to
// y[batch,out_height,out_width,out], one stride and one padding for both sides.
#pragma once

#include <cstdint>

#include "tandem/runtime/kernel.h"

namespace tandem::cuda {

struct ConvShape {
  DType type = DType::F32;  // of x, w and y
  int64_t batch = 0, height = 0, width = 0, in = 0;
  int64_t out_height = 0, out_width = 0, out = 0;
  int64_t kernel = 0, stride = 0, pad = 0;

  int64_t image_rows() const { return out_height * out_width; }  // of y, an image
  int64_t rows() const { return batch * image_rows(); }
  int64_t patch() const { return kernel * kernel * in; }  // elements that a pixel of y is made of
  int64_t weights() const { return out * patch(); }
  // Whether the rows of x are the patches.
  bool is_product() const { return kernel == 1 && stride == 1 && pad == 0; }

  auto operator<=>(const ConvShape&) const = default;
};

inline ConvShape conv_shape(const TensorType& x, const TensorType& w, const TensorType& y,
                            const Attrs& attrs) {
  return {.type = x.dtype,
          .batch = x.shape[0],
          .height = x.shape[1],
          .width = x.shape[2],
          .in = x.shape[3],
          .out_height = y.shape[1],
          .out_width = y.shape[2],
          .out = y.shape[3],
          .kernel = w.shape[1],
          .stride = attrs.integer("stride"),
          .pad = attrs.integer("pad")};
}

// The three passes, each by what it writes.
struct ConvForward {
  const void* x;
  const void* w;
  const void* bias;  // of the storage type, or null
  void* y;
};
struct ConvGradInput {
  const void* dy;
  const void* w;
  void* dx;
};
struct ConvGradWeight {
  const void* x;
  const void* dy;
  float* acc;
  bool fresh;  // overwritten, not added to
};

}  // namespace tandem::cuda
