// Batch normalisation over the rows of several ranks, which have equally many. Between the two halves of
// either direction the ranks exchange two numbers a channel.
#include "tandem/kernels/cpu/norm/batch_norm_passes.h"
#include "tandem/kernels/cpu/norm/batch_norm_rows.h"

namespace tandem::cpu {
namespace {

bool all_f32(std::span<const TensorType> types) {
  return std::all_of(types.begin(), types.end(), [](const TensorType& t) { return t.dtype == DType::F32; });
}

size_t workspace(const CallSignature& call, int) { return NormScratch::bytes(RowCut(call.in[0].shape)); }

bool supports_stats(const CallSignature& call) {
  return is_storage(call.in[0].dtype) && call.out[0].dtype == DType::F32;
}
void batch_norm_stats(const KernelArgs& args, Stream& stream) {
  const RowCut cut(args.in[0].type.shape);
  const NormScratch scratch(args.workspace.data(), cut);
  batch_moments(args.in[0], cut, scratch, stream.pool());
  float* parts = args.out[0].as<float>();  // the mean, then the squared distances: as they lie in the scratch
  for (int64_t i = 0; i < 2 * cut.channels; ++i) parts[i] = static_cast<float>(scratch.first(0)[i]);
}

bool supports_apply(const CallSignature& call) {
  return is_storage(call.in[0].dtype) && call.out[0].dtype == call.in[0].dtype &&
         is_storage(call.in[1].dtype) && is_storage(call.in[2].dtype) &&
         all_f32(std::span(call.in).subspan(3)) && all_f32(std::span(call.out).subspan(1));
}
// Besides, the next rank's part in double.
size_t apply_workspace(const CallSignature& call, int num_threads) {
  return workspace(call, num_threads) + static_cast<size_t>(2 * call.in[0].shape.last()) * sizeof(double);
}
void batch_norm_apply(const KernelArgs& args, Stream& stream) {
  const RowCut cut(args.in[0].type.shape);
  const NormScratch scratch(args.workspace.data() + 2 * cut.channels * sizeof(double), cut);
  const float* parts = args.in[5].as<float>();
  const double rows = static_cast<double>(cut.rows);
  const int64_t size = args.attrs.integer("size");
  auto* next = reinterpret_cast<double*>(args.workspace.data());
  std::copy_n(parts, 2 * cut.channels, scratch.first(0));
  for (int64_t rank = 1; rank < size; ++rank) {
    std::copy_n(parts + 2 * rank * cut.channels, 2 * cut.channels, next);
    merge_moments(cut.channels, static_cast<double>(rank) * rows, scratch.first(0), scratch.second(0), rows,
                  next, next + cut.channels);
  }
  apply_moments(args, cut, static_cast<double>(size) * rows, scratch, stream.pool());
}

bool supports_grad(const CallSignature& call) {
  return is_storage(call.in[0].dtype) && call.in[1].dtype == call.in[0].dtype &&
         (call.op == Op::BatchNormGradStats
              ? all_f32(std::span(call.in).subspan(2)) && all_f32(call.out)
              : is_storage(call.in[2].dtype) && all_f32(std::span(call.in).subspan(3)) &&
                    call.out[0].dtype == call.in[0].dtype);
}
void batch_norm_grad_stats(const KernelArgs& args, Stream& stream) {
  const float *mean = args.in[2].as<float>(), *rstd = args.in[3].as<float>();
  const RowCut cut(args.in[1].type.shape);
  const NormScratch scratch(args.workspace.data(), cut);
  batch_grad_sums(args.in[0], args.in[1], mean, cut, scratch, stream.pool());
  float *sums = args.out[0].as<float>(), *dgamma = args.out[1].as<float>(), *dbeta = args.out[2].as<float>();
  for (int64_t c = 0; c < cut.channels; ++c) {
    sums[c] = static_cast<float>(scratch.first(0)[c]);
    sums[cut.channels + c] = static_cast<float>(scratch.second(0)[c] * rstd[c]);
    dgamma[c] += sums[cut.channels + c];
    dbeta[c] += sums[c];
  }
}

// dx = gamma rstd (dy - mean(dy) - x_hat mean(dy x_hat)), as three coefficients a channel.
void batch_norm_grad_apply(const KernelArgs& args, Stream& stream) {
  const float *mean = args.in[3].as<float>(), *rstd = args.in[4].as<float>(), *sums = args.in[5].as<float>();
  const RowCut cut(args.in[1].type.shape);
  const NormScratch scratch(args.workspace.data(), cut);
  float *a = scratch.coefficient(0), *b = scratch.coefficient(1), *c0 = scratch.coefficient(2);
  const double count = static_cast<double>(args.attrs.integer("size") * cut.rows);
  for (int64_t c = 0; c < cut.channels; ++c) {
    const double slope = static_cast<double>(rstd[c]) * weight_at(args.in[2], c);
    a[c] = static_cast<float>(slope);
    b[c] = static_cast<float>(-slope * rstd[c] * sums[cut.channels + c] / count);
    c0[c] = static_cast<float>(-slope * sums[c] / count);
  }
  apply_batch_grad(args.in[0], args.in[1], mean, cut, scratch, args.out[0], stream.pool());
}

}  // namespace

void add_batch_norm_sync_kernels(KernelRegistry& registry) {
  registry.add({"cpu.batch_norm_stats", Op::BatchNormStats, supports_stats, workspace, batch_norm_stats});
  registry.add(
      {"cpu.batch_norm_apply", Op::BatchNormApply, supports_apply, apply_workspace, batch_norm_apply});
  registry.add(
      {"cpu.batch_norm_grad_stats", Op::BatchNormGradStats, supports_grad, workspace, batch_norm_grad_stats});
  registry.add(
      {"cpu.batch_norm_grad_apply", Op::BatchNormGradApply, supports_grad, workspace, batch_norm_grad_apply});
}

}  // namespace tandem::cpu
