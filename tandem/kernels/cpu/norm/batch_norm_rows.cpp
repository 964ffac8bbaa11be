#include "tandem/kernels/cpu/norm/batch_norm_rows.h"

#include <cmath>

#include "tandem/kernels/cpu/norm/batch_norm_passes.h"

namespace tandem::cpu {

RowCut::RowCut(const Shape& x) : rows(x.rows()), channels(x.last()) {
  constexpr int64_t kMaxParts = 64;
  const int64_t cached_rows = std::max<int64_t>(64, kElemsPerTask / channels);
  part_rows = std::max(cached_rows, ceil_div(rows, kMaxParts));
  num_parts = ceil_div(rows, part_rows);
}

size_t NormScratch::bytes(const RowCut& cut) {
  return static_cast<size_t>(cut.channels) *
         (static_cast<size_t>(cut.num_parts) * (2 * sizeof(double) + 2 * sizeof(float)) + 4 * sizeof(float));
}

void batch_moments(const TensorArg& x, const RowCut& cut, const NormScratch& scratch, ThreadPool& pool) {
  pool.parallel_for(cut.num_parts, [&](int64_t index, int) {
    const Range rows = part(cut.rows, cut.part_rows, index);
    channel_moments(x.type.dtype, offset_elems(x.data, x.type.dtype, rows.begin * cut.channels), rows.size(),
                    cut.channels, scratch.floats(index), scratch.first(index), scratch.second(index));
  });
  for (int64_t index = 1; index < cut.num_parts; ++index) {
    const Range rows = part(cut.rows, cut.part_rows, index);
    merge_moments(cut.channels, static_cast<double>(rows.begin), scratch.first(0), scratch.second(0),
                  static_cast<double>(rows.size()), scratch.first(index), scratch.second(index));
  }
}

void apply_moments(const KernelArgs& args, const RowCut& cut, double count, const NormScratch& scratch,
                   ThreadPool& pool) {
  const double *mean = scratch.first(0), *m2 = scratch.second(0);
  const double eps = args.attrs.real("eps"), momentum = args.attrs.real("momentum");
  float *mean_out = args.out[1].as<float>(), *rstd_out = args.out[2].as<float>();
  float *running_mean = args.out[3].as<float>(), *running_var = args.out[4].as<float>();
  float *scale = scratch.coefficient(0), *shift = scratch.coefficient(1);
  for (int64_t c = 0; c < cut.channels; ++c) {
    const double rstd = 1 / std::sqrt(m2[c] / count + eps);
    const double unbiased = m2[c] / std::max(count - 1, 1.0);
    mean_out[c] = static_cast<float>(mean[c]);
    rstd_out[c] = static_cast<float>(rstd);
    running_mean[c] = static_cast<float>((1 - momentum) * running_mean[c] + momentum * mean[c]);
    running_var[c] = static_cast<float>((1 - momentum) * running_var[c] + momentum * unbiased);
    scale[c] = static_cast<float>(rstd * weight_at(args.in[1], c));
    shift[c] = weight_at(args.in[2], c);
  }
  normalise_batch(args.in[0], args.out[0], cut, mean_out, scratch, pool);
}

void normalise_batch(const TensorArg& x, const TensorArg& y, const RowCut& cut, const float* mean,
                     const NormScratch& scratch, ThreadPool& pool) {
  const DType dtype = x.type.dtype;
  for_row_groups(pool, cut.rows, cut.channels, [&](int64_t begin, int64_t end, int) {
    const int64_t at = begin * cut.channels;
    channel_normalise(dtype, offset_elems(x.data, dtype, at), end - begin, cut.channels, mean,
                      scratch.coefficient(0), scratch.coefficient(1), offset_elems(y.data, dtype, at));
  });
}

void batch_grad_sums(const TensorArg& dy, const TensorArg& x, const float* mean, const RowCut& cut,
                     const NormScratch& scratch, ThreadPool& pool) {
  const DType dtype = x.type.dtype;
  pool.parallel_for(cut.num_parts, [&](int64_t index, int) {
    const Range rows = part(cut.rows, cut.part_rows, index);
    const int64_t at = rows.begin * cut.channels;
    channel_grad_sums(dtype, offset_elems(dy.data, dtype, at), offset_elems(x.data, dtype, at), rows.size(),
                      cut.channels, mean, scratch.floats(index), scratch.first(index), scratch.second(index));
  });
  for (int64_t index = 1; index < cut.num_parts; ++index) {
    for (int64_t c = 0; c < cut.channels; ++c) {
      scratch.first(0)[c] += scratch.first(index)[c];
      scratch.second(0)[c] += scratch.second(index)[c];
    }
  }
}

void apply_batch_grad(const TensorArg& dy, const TensorArg& x, const float* mean, const RowCut& cut,
                      const NormScratch& scratch, const TensorArg& dx, ThreadPool& pool) {
  const DType dtype = x.type.dtype;
  const GradCoefficients k{mean, scratch.coefficient(0), scratch.coefficient(1), scratch.coefficient(2)};
  for_row_groups(pool, cut.rows, cut.channels, [&](int64_t begin, int64_t end, int) {
    const int64_t at = begin * cut.channels;
    channel_grad_apply(dtype, offset_elems(dy.data, dtype, at), offset_elems(x.data, dtype, at), end - begin,
                       cut.channels, k, offset_elems(dx.data, dtype, at));
  });
}

}  // namespace tandem::cpu
