#include "tandem/kernels/cpu/loss/loss_kernels.h"
#include "tandem/kernels/cpu/pointwise/pointwise.h"

namespace tandem::cpu {
namespace {

bool supports(const CallSignature& call) {  // the stats come last
  return is_storage(call.in[0].dtype) && call.in[1].dtype == DType::I32 &&
         call.out.back().dtype == DType::F64 && (call.in.size() < 3 || call.in[2].dtype == DType::F32) &&
         (call.in.size() < 5 || (call.in[3].dtype == DType::I32 && call.in[4].dtype == DType::F32));
}

size_t workspace(const CallSignature& call, int) {
  const Shape& logits = call.in[0].shape;
  return static_cast<size_t>(num_loss_partials(logits.rows(), logits.last())) * sizeof(LossSums);
}

LogitRows logit_rows(const KernelArgs& args) {
  const TensorArg& logits = args.in[0];
  LogitRows rows{.logits = logits.data,
                 .dtype = logits.type.dtype,
                 .rows = logits.type.shape.rows(),
                 .vocab = logits.type.shape.last(),
                 .targets = args.in[1].as<const int32_t>()};
  check_targets(rows.targets, rows.rows, rows.vocab);
  if (args.in.size() > 3) {
    rows.partners = args.in[3].as<const int32_t>();
    rows.shares = args.in[4].as<const float>();
    check_targets(rows.partners, rows.rows, rows.vocab);
  }
  return rows;
}

void run(const KernelArgs& args, Stream& stream) {
  auto* partials = reinterpret_cast<LossSums*>(args.workspace.data());
  store_loss(cross_entropy_rows(logit_rows(args), partials, stream.pool()), args.out[0]);
}

void run_grad(const KernelArgs& args, Stream& stream) {
  auto* partials = reinterpret_cast<LossSums*>(args.workspace.data());
  const float scale = args.in[2].as<float>()[0];
  store_loss(
      cross_entropy_rows_grad(logit_rows(args), scale, read_loss_terms(args.attrs), partials, stream.pool()),
      args.out[1]);
}

}  // namespace

void add_cross_entropy_kernels(KernelRegistry& registry) {
  registry.add({"cpu.cross_entropy", Op::CrossEntropy, supports, workspace, run});
  registry.add({"cpu.cross_entropy_grad", Op::CrossEntropyGrad, supports, workspace, run_grad});
}

}  // namespace tandem::cpu
