// Batch normalisation over [rows, channels].
#include <cmath>

#include "tandem/kernels/cpu/norm/batch_norm_rows.h"

namespace tandem::cpu {
namespace {

size_t workspace(const CallSignature& call, int) {
  return NormScratch::bytes(RowCut(call.in[call.op == Op::BatchNormGrad ? 1 : 0].shape));
}

void batch_norm(const KernelArgs& args, Stream& stream) {
  const RowCut cut(args.in[0].type.shape);
  const NormScratch scratch(args.workspace.data(), cut);
  batch_moments(args.in[0], cut, scratch, stream.pool());
  apply_moments(args, cut, static_cast<double>(cut.rows), scratch, stream.pool());
}

void batch_norm_infer(const KernelArgs& args, Stream& stream) {
  const RowCut cut(args.in[0].type.shape);
  const NormScratch scratch(args.workspace.data(), cut);
  const float *running_mean = args.in[3].as<float>(), *running_var = args.in[4].as<float>();
  float *scale = scratch.coefficient(0), *shift = scratch.coefficient(1);
  for (int64_t c = 0; c < cut.channels; ++c) {
    const double rstd = 1 / std::sqrt(running_var[c] + args.attrs.real("eps"));
    scale[c] = static_cast<float>(rstd * weight_at(args.in[1], c));
    shift[c] = weight_at(args.in[2], c);
  }
  normalise_batch(args.in[0], args.out[0], cut, running_mean, scratch, stream.pool());
}

// dx = gamma rstd (dy - mean(dy) - x_hat mean(dy x_hat)), as three coefficients a channel.
void batch_norm_grad(const KernelArgs& args, Stream& stream) {
  const TensorArg &dy = args.in[0], &x = args.in[1], &gamma = args.in[2];
  const float *mean = args.in[3].as<float>(), *rstd = args.in[4].as<float>();
  const RowCut cut(x.type.shape);
  const NormScratch scratch(args.workspace.data(), cut);
  batch_grad_sums(dy, x, mean, cut, scratch, stream.pool());
  const double *sum_dy = scratch.first(0), *sum_dyx = scratch.second(0);
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
  apply_batch_grad(dy, x, mean, cut, scratch, args.out[0], stream.pool());
}

bool supports(const CallSignature& call) {
  const DType dtype = call.in[0].dtype;
  if (call.attrs->integer_or("relu", 0) != 0) return false;
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
