// What batch normalisation of one rank's rows and of many ranks' share. Rows are cut by shape into a bounded
// number of parts, one task each; the parts' sums lie in the workspace and are combined in order, whatever
// thread made them.
#pragma once

#include "tandem/kernels/cpu/conv/image_kernels.h"

namespace tandem::cpu {

struct RowCut {
  int64_t rows, channels, part_rows, num_parts;

  explicit RowCut(const Shape& x);
};

// Workspace: two doubles and two floats a channel for each part, then four floats a channel.
struct NormScratch {
  std::byte* base;
  int64_t channels, num_parts;

  NormScratch(std::byte* base, const RowCut& cut)
      : base(base), channels(cut.channels), num_parts(cut.num_parts) {}
  double* first(int64_t part) const { return reinterpret_cast<double*>(base) + 2 * part * channels; }
  double* second(int64_t part) const { return first(part) + channels; }
  float* floats(int64_t part) const {
    return reinterpret_cast<float*>(first(num_parts)) + 2 * part * channels;
  }
  float* coefficient(int index) const { return floats(num_parts) + index * channels; }
  static size_t bytes(const RowCut& cut);
};

// Leaves mean and sum of squared distances from it in first(0) and second(0).
void batch_moments(const TensorArg& x, const RowCut& cut, const NormScratch& scratch, ThreadPool& pool);

// BatchNorm and BatchNormApply once the moments of all `count` rows lie in first(0) and second(0): writes the
// statistics, updates the running ones, and normalises this call's rows.
void apply_moments(const KernelArgs& args, const RowCut& cut, double count, const NormScratch& scratch,
                   ThreadPool& pool);

// y = (x - mean) * scale + shift, with scale and shift in coefficients 0 and 1.
void normalise_batch(const TensorArg& x, const TensorArg& y, const RowCut& cut, const float* mean,
                     const NormScratch& scratch, ThreadPool& pool);

// Leaves the sums of dy and of dy * (x - mean) in first(0) and second(0).
void batch_grad_sums(const TensorArg& dy, const TensorArg& x, const float* mean, const RowCut& cut,
                     const NormScratch& scratch, ThreadPool& pool);

// dx = a dy + b (x - mean) + c, with a, b, c in coefficients 0, 1 and 2.
void apply_batch_grad(const TensorArg& dy, const TensorArg& x, const float* mean, const RowCut& cut,
                      const NormScratch& scratch, const TensorArg& dx, ThreadPool& pool);

}  // namespace tandem::cpu
