// The attention ops for 16-bit types: through cuDNN, and the gradient by our own kernel where there is one.
// Preparing is running once: it finds the engine and loads its code, neither of which can be done while a
// CUDA graph is captured.
#include <algorithm>

#include "tandem/kernels/cuda/attention/fused_attention.h"
#include "tandem/kernels/cuda/attention/hopper_attention_grad.h"
#include "tandem/kernels/cuda/attention/packed_heads.h"
#include "tandem/kernels/cuda/device/queue_of.h"
#include "tandem/kernels/cuda/register.h"

namespace tandem::cuda {
namespace {

FusedAttention shape_of(const TensorType& qkv, const Attrs& attrs) {
  const PackedHeads packed = packed_heads(qkv, attrs);
  FusedAttention shape{.batch = packed.batch,
                       .time = packed.tokens,
                       .heads = packed.heads,
                       .kv_heads = packed.kv_heads,
                       .head_dim = packed.head_dim,
                       .type = qkv.dtype,
                       .causal = attrs.integer("causal") != 0,
                       .scale = static_cast<float>(attrs.real_or("scale", 0)),
                       .cap = static_cast<float>(attrs.real_or("softcap", 0))};
  if (const int64_t window = attrs.integer_or("window", packed.tokens); window < packed.tokens)
    shape.window = window;
  if (attrs.has("scratch"))  // 16 bits a score
    shape.max_scores = std::min(shape.max_scores, attrs.integer("scratch") / dtype_bytes(DType::BF16));
  return shape;
}

template <int64_t kMaxHeadDim>
bool supports(const CallSignature& call) {
  return call.in.size() == 1 && fused_attention_supported(shape_of(call.in[0], *call.attrs), kMaxHeadDim);
}
size_t workspace(const CallSignature& call, int) {
  return fused_attention_workspace(shape_of(call.in[0], *call.attrs));
}
void run(const KernelArgs& args, Stream& stream) {
  run_fused_attention(shape_of(args.in[0].type, args.attrs),
                      {.qkv = args.in[0].data, .out = args.out[0].data, .lse = args.out[1].data},
                      args.workspace, queue_of(stream));
}

template <int64_t kMaxHeadDim>
bool supports_grad(const CallSignature& call) {
  return call.in.size() == 4 &&
         fused_attention_grad_supported(shape_of(call.in[1], *call.attrs), kMaxHeadDim);
}
size_t workspace_grad(const CallSignature& call, int) {
  return fused_attention_grad_workspace(shape_of(call.in[1], *call.attrs));
}
FusedAttentionGradTensors grad_tensors(const KernelArgs& args) {
  return {.dout = args.in[0].data,
          .qkv = args.in[1].data,
          .out = args.in[2].data,
          .lse = args.in[3].data,
          .dqkv = args.out[0].data};
}
void run_grad(const KernelArgs& args, Stream& stream) {
  run_fused_attention_grad(shape_of(args.in[1].type, args.attrs), grad_tensors(args), args.workspace,
                           queue_of(stream));
}

// With four inputs, or five where it is to sum for a bias.
bool supports_hopper_grad(const CallSignature& call) {
  const bool sums = call.attrs->integer_or("sums", 0) != 0;
  return call.in.size() == (sums ? 5 : 4) && (!sums || call.in[4].dtype == DType::F32) &&
         hopper_attention_grad_supported(shape_of(call.in[1], *call.attrs));
}
size_t workspace_hopper_grad(const CallSignature& call, int) {
  return hopper_attention_grad_workspace(shape_of(call.in[1], *call.attrs), call.in.size() > 4);
}
void run_hopper_grad(const KernelArgs& args, Stream& stream) {
  BiasSums bias;
  if (args.out.size() > 1)
    bias = {.sums = args.out[1].as<float>(), .accumulate = args.attrs.integer_or("fresh", 0) == 0};
  run_hopper_attention_grad(shape_of(args.in[1].type, args.attrs), grad_tensors(args), bias, args.workspace,
                            queue_of(stream));
}

template <int64_t kMaxHeadDim>
void add_fused(KernelRegistry& registry) {
  registry.add({"cudnn.attention", Op::Attention, supports<kMaxHeadDim>, workspace, run, run});
  registry.add({"cudnn.attention_grad", Op::AttentionGrad, supports_grad<kMaxHeadDim>, workspace_grad,
                run_grad, run_grad});
}

}  // namespace

bool hopper_sums_for_bias(const TensorType& qkv, const Attrs& attrs) {
  // Within segments the plain kernel makes the gradient, which sums nothing.
  return attrs.integer_or("segments", 0) == 0 && hopper_attention_grad_supported(shape_of(qkv, attrs));
}

void add_hopper_kernels(KernelRegistry& registry) {
  registry.add({"hopper.attention_grad", Op::AttentionGrad, supports_hopper_grad, workspace_hopper_grad,
                run_hopper_grad});
  add_fused<kHopperHeadDim>(registry);
}

void add_fused_attention_kernels(KernelRegistry& registry) { add_fused<kFusedHeadDim>(registry); }

}  // namespace tandem::cuda
