// Batch normalisation over [rows, channels]. Rows are cut by shape into at most kMaxParts parts, one task
// each; the parts' sums lie in the workspace and are combined in order, whatever thread made them.
#include <cmath>

#include "tandem/kernels/cpu/batch_norm_passes.h"
#include "tandem/kernels/cpu/image_kernels.h"
#include "tandem/kernels/cpu/pointwise.h"

namespace tandem::cpu {
namespace {

constexpr int64_t kMaxParts = 64;

struct Cut {
  int64_t rows, channels, part_rows, num_parts;

  explicit Cut(const Shape& x) : rows(x.rows()), channels(x.last()) {
    const int64_t cached_rows = std::max<int64_t>(64, kElemsPerTask / channels);
    part_rows = std::max(cached_rows, ceil_div(rows, kMaxParts));
    num_parts = ceil_div(rows, part_rows);
  }
};

// Workspace: two doubles and two floats a channel for each part, then four floats a channel.
struct Scratch {
  std::byte* base;
  int64_t channels, num_parts;

  Scratch(std::byte* base, const Cut& cut) : base(base), channels(cut.channels), num_parts(cut.num_parts) {}
  double* first(int64_t part) const { return reinterpret_cast<double*>(base) + 2 * part * channels; }
  double* second(int64_t part) const { return first(part) + channels; }
  float* floats(int64_t part) const {
    return reinterpret_cast<float*>(first(num_parts)) + 2 * part * channels;
  }
  float* coefficient(int index) const { return floats(num_parts) + index * channels; }
  static size_t bytes(const Cut& cut) {
    return static_cast<size_t>(cut.channels) *
           (static_cast<size_t>(cut.num_parts) * (2 * sizeof(double) + 2 * sizeof(float)) +
            4 * sizeof(float));
  }
};

size_t workspace(const CallSignature& call, int) {
  return Scratch::bytes(Cut(call.in[call.op == Op::BatchNormGrad ? 1 : 0].shape));
}

void normalise(const TensorArg& x, const TensorArg& y, const Cut& cut, const float* mean, const float* scale,
               const float* shift, ThreadPool& pool) {
  const DType dtype = x.type.dtype;
  for_row_groups(pool, cut.rows, cut.channels, [&](int64_t begin, int64_t end, int) {
    const int64_t at = begin * cut.channels;
    channel_normalise(dtype, offset_elems(x.data, dtype, at), end - begin, cut.channels, mean, scale, shift,
                      offset_elems(y.data, dtype, at));
  });
}

void batch_norm(const KernelArgs& args, Stream& stream) {
  const TensorArg &x = args.in[0], &gamma = args.in[1], &beta = args.in[2];
  const Cut cut(x.type.shape);
  const Scratch scratch(args.workspace.data(), cut);
  stream.pool().parallel_for(cut.num_parts, [&](int64_t index, int) {
    const Range rows = part(cut.rows, cut.part_rows, index);
    channel_moments(x.type.dtype, offset_elems(x.data, x.type.dtype, rows.begin * cut.channels), rows.size(),
                    cut.channels, scratch.floats(index), scratch.first(index), scratch.second(index));
  });
  double* mean = scratch.first(0);
  double* m2 = scratch.second(0);
  for (int64_t index = 1; index < cut.num_parts; ++index) {
    const Range rows = part(cut.rows, cut.part_rows, index);
    merge_moments(cut.channels, static_cast<double>(rows.begin), mean, m2, static_cast<double>(rows.size()),
                  scratch.first(index), scratch.second(index));
  }
  const double eps = args.attrs.real("eps"), momentum = args.attrs.real("momentum");
  const double count = static_cast<double>(cut.rows);
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
    scale[c] = static_cast<float>(rstd * weight_at(gamma, c));
    shift[c] = weight_at(beta, c);
  }
  normalise(x, args.out[0], cut, mean_out, scale, shift, stream.pool());
}

void batch_norm_infer(const KernelArgs& args, Stream& stream) {
  const Cut cut(args.in[0].type.shape);
  const Scratch scratch(args.workspace.data(), cut);
  const float *running_mean = args.in[3].as<float>(), *running_var = args.in[4].as<float>();
  float *scale = scratch.coefficient(0), *shift = scratch.coefficient(1);
  for (int64_t c = 0; c < cut.channels; ++c) {
    const double rstd = 1 / std::sqrt(running_var[c] + args.attrs.real("eps"));
    scale[c] = static_cast<float>(rstd * weight_at(args.in[1], c));
    shift[c] = weight_at(args.in[2], c);
  }
  normalise(args.in[0], args.out[0], cut, running_mean, scale, shift, stream.pool());
}

// dx = gamma rstd (dy - mean(dy) - x_hat mean(dy x_hat)), as three coefficients a channel.
void batch_norm_grad(const KernelArgs& args, Stream& stream) {
  const TensorArg &dy = args.in[0], &x = args.in[1], &gamma = args.in[2];
  const float *mean = args.in[3].as<float>(), *rstd = args.in[4].as<float>();
  const Cut cut(x.type.shape);
  const Scratch scratch(args.workspace.data(), cut);
  const DType dtype = x.type.dtype;
  stream.pool().parallel_for(cut.num_parts, [&](int64_t index, int) {
    const Range rows = part(cut.rows, cut.part_rows, index);
    const int64_t at = rows.begin * cut.channels;
    channel_grad_sums(dtype, offset_elems(dy.data, dtype, at), offset_elems(x.data, dtype, at), rows.size(),
                      cut.channels, mean, scratch.floats(index), scratch.first(index), scratch.second(index));
  });
  double* sum_dy = scratch.first(0);
  double* sum_dyx = scratch.second(0);
  for (int64_t index = 1; index < cut.num_parts; ++index) {
    for (int64_t c = 0; c < cut.channels; ++c) {
      sum_dy[c] += scratch.first(index)[c];
      sum_dyx[c] += scratch.second(index)[c];
    }
  }
  float *dgamma = args.out[1].as<float>(), *dbeta = args.out[2].as<float>();
  float *a = scratch.coefficient(0), *b = scratch.coefficient(1), *c0 = scratch.coefficient(2);
  const double count = static_cast<double>(cut.rows);
  for (int64_t c = 0; c < cut.channels; ++c) {
    const double slope = static_cast<double>(rstd[c]) * weight_at(gamma, c);
    dgamma[c] += static_cast<float>(sum_dyx[c] * rstd[c]);
    dbeta[c] += static_cast<float>(sum_dy[c]);
    a[c] = static_cast<float>(slope);
    b[c] = static_cast<float>(-slope * rstd[c] * rstd[c] * sum_dyx[c] / count);
    c0[c] = static_cast<float>(-slope * sum_dy[c] / count);
  }
  for_row_groups(stream.pool(), cut.rows, cut.channels, [&](int64_t begin, int64_t end, int) {
    const int64_t at = begin * cut.channels;
    channel_grad_apply(dtype, offset_elems(dy.data, dtype, at), offset_elems(x.data, dtype, at), end - begin,
                       cut.channels, {mean, a, b, c0}, offset_elems(args.out[0].data, dtype, at));
  });
}

bool supports(const CallSignature& call) {
  const DType dtype = call.in[0].dtype;
  return is_storage(dtype) && call.out[0].dtype == dtype && is_storage(call.in[2].dtype) &&
         call.in[3].dtype == DType::F32 && call.in[4].dtype == DType::F32 &&
         (call.op == Op::BatchNormGrad ? call.in[1].dtype == dtype && call.out[1].dtype == DType::F32
                                       : is_storage(call.in[1].dtype));
}

}  // namespace

void add_batch_norm_kernels(KernelRegistry& registry) {
  registry.add({"cpu.batch_norm", Op::BatchNorm, supports, workspace, batch_norm});
  registry.add({"cpu.batch_norm_infer", Op::BatchNormInfer, supports, workspace, batch_norm_infer});
  registry.add({"cpu.batch_norm_grad", Op::BatchNormGrad, supports, workspace, batch_norm_grad});
}

}  // namespace tandem::cpu
