#include "tandem/base/error.h"
#include "tandem/kernels/cpu/loss/loss_kernels.h"
#include "tandem/kernels/cpu/loss/vocab_loss_rows.h"
#include "tandem/kernels/cpu/pointwise/pointwise.h"

namespace tandem::cpu {
namespace {

LogitRows logit_rows(const KernelArgs& args) {
  const TensorType& type = args.in[0].type;
  return {.logits = args.in[0].data,
          .dtype = type.dtype,
          .rows = type.shape.rows(),
          .vocab = type.shape.last(),
          .targets = args.in[1].as<const int32_t>()};
}

VocabParts vocab_parts(const TensorArg& parts, const TensorArg& targets, const Attrs& attrs) {
  return {.parts = parts.as<const VocabPart>(),
          .size = attrs.integer("size"),
          .rows = targets.elems(),
          .targets = targets.as<const int32_t>()};
}

VocabShard vocab_shard(const KernelArgs& args) {
  const int64_t columns = args.in[0].type.shape.last();
  return {.first = args.attrs.integer("first"), .size = args.attrs.integer_or("valid", columns)};
}

size_t partials_bytes(const TensorType& targets) {
  return static_cast<size_t>(num_vocab_loss_partials(targets.shape.elems())) * sizeof(LossSums);
}

bool supports_parts(const CallSignature& call) {
  return is_storage(call.in[0].dtype) && call.in[1].dtype == DType::I32 && call.out[0].dtype == DType::F32;
}
void run_parts(const KernelArgs& args, Stream& stream) {
  const LogitRows rows = logit_rows(args);
  const VocabShard shard = vocab_shard(args);
  check_targets(rows.targets, rows.rows, kMaxVocabId);
  TANDEM_CHECK(shard.first >= 0 && shard.first + shard.size <= kMaxVocabId, "columns {}, +{}", shard.first,
               shard.size);
  describe_vocab_rows(rows, shard, args.out[0].as<VocabPart>(), stream.pool());
}

bool supports_loss(const CallSignature& call) {
  return call.in[0].dtype == DType::F32 && call.in[1].dtype == DType::I32 && call.out[0].dtype == DType::F64;
}
size_t loss_workspace(const CallSignature& call, int) { return partials_bytes(call.in[1]); }
void run_loss(const KernelArgs& args, Stream& stream) {
  auto* partials = reinterpret_cast<LossSums*>(args.workspace.data());
  store_loss(vocab_loss(vocab_parts(args.in[0], args.in[1], args.attrs), partials, stream.pool()),
             args.out[0]);
}

bool supports_grad(const CallSignature& call) {
  return is_storage(call.in[0].dtype) && call.in[1].dtype == DType::I32 && call.in[2].dtype == DType::F32 &&
         call.in[3].dtype == DType::F32 && call.out[1].dtype == DType::F64;
}
void run_grad(const KernelArgs& args, Stream& stream) {
  const LogitRows rows = logit_rows(args);
  const VocabParts parts = vocab_parts(args.in[2], args.in[1], args.attrs);
  check_targets(rows.targets, rows.rows, parts.size * rows.vocab);
  auto* partials = reinterpret_cast<LossSums*>(args.workspace.data());
  store_loss(vocab_loss(parts, partials, stream.pool()), args.out[1]);
  vocab_loss_grad(rows, vocab_shard(args), parts, args.in[3].as<float>()[0], stream.pool());
}

}  // namespace

void add_vocab_loss_kernels(KernelRegistry& registry) {
  registry.add({"cpu.vocab_parts", Op::VocabParts, supports_parts, nullptr, run_parts});
  registry.add({"cpu.vocab_loss", Op::VocabLoss, supports_loss, loss_workspace, run_loss});
  registry.add({"cpu.vocab_loss_grad", Op::VocabLossGrad, supports_grad, loss_workspace, run_grad});
}

}  // namespace tandem::cpu
