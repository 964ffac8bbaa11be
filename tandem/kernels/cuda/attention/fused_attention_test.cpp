// The attention kernels through cuDNN against the reference, which does all arithmetic in double. Inputs are
// standard normals, so outputs and gradients are of order one.
#include "tandem/kernels/cuda/attention/fused_attention.h"

#include <cuda_runtime_api.h>

#include <memory>

#include "tandem/kernels/cuda/attention/attention_call_test.h"
#include "tandem/kernels/cuda/device/cuda_check.h"
#include "tandem/kernels/cuda/register.h"

namespace tandem::cuda {
namespace {

using Case = cpu::AttentionCase;

FusedAttention shape_of(const Case& c) {
  return {c.batch, c.tokens, c.heads, c.kv_heads, c.head_dim, c.dtype, c.causal != 0};
}

// One block of keys and several, groups of one, two and four, both masks, head sizes off the powers of two.
const Case kCases[] = {
    {2, 128, 4, 4, 64, 1, DType::BF16}, {1, 384, 2, 2, 64, 1, DType::F16},
    {2, 256, 2, 1, 64, 0, DType::BF16}, {1, 128, 4, 1, 128, 1, DType::F16},
    {1, 256, 3, 3, 128, 0, DType::F16}, {3, 128, 4, 2, 80, 1, DType::BF16},
    {1, 256, 2, 2, 32, 1, DType::BF16}, {2, 128, 2, 1, 8, 0, DType::F16},
};

// Sequences that end within a block of keys.
const Case kRagged[] = {
    {2, 1, 2, 2, 64, 1, DType::BF16},   {2, 100, 4, 4, 64, 1, DType::BF16},
    {3, 77, 2, 1, 128, 1, DType::F16},  {2, 129, 4, 2, 80, 1, DType::BF16},
    {1, 250, 3, 3, 96, 1, DType::BF16}, {2, 383, 4, 1, 128, 1, DType::BF16},
    {5, 65, 2, 2, 32, 1, DType::F16},
};

TEST(FusedAttention, MatchesTheReferenceOverRaggedSequences) {
  TANDEM_NEEDS_GPU();
  for (Case c : kRagged) {
    for (c.causal = 0; c.causal < 2; ++c.causal) {
      SCOPED_TRACE(c.describe());
      expect_as_reference(attention_call(c), attention_slack(c.dtype), "cudnn.attention");
      if (HasFatalFailure()) return;
    }
  }
}

TEST(FusedAttentionGrad, MatchesTheReferenceOverRaggedSequences) {
  TANDEM_NEEDS_GPU();
  for (const Case& c : kRagged) {
    SCOPED_TRACE(c.describe());
    expect_as_reference(attention_grad_call(c), attention_slack(c.dtype), "cudnn.attention_grad");
    if (HasFatalFailure()) return;
  }
}

TEST(FusedAttention, MatchesTheReference) {
  TANDEM_NEEDS_GPU();
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.describe());
    expect_as_reference(attention_call(c), attention_slack(c.dtype), "cudnn.attention");
    if (HasFatalFailure()) return;
  }
}

TEST(FusedAttentionGrad, MatchesTheReference) {
  TANDEM_NEEDS_GPU();
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.describe());
    expect_as_reference(attention_grad_call(c), attention_slack(c.dtype), "cudnn.attention_grad");
    if (HasFatalFailure()) return;
  }
}

// Windows, scales, caps (whose gradient is not for the library) and, on a Hopper, heads of up to 256.
const Case kFamilies[] = {
    {1, 256, 4, 2, 64, 1, DType::BF16, 40},          {2, 200, 4, 2, 128, 1, DType::BF16, 130},
    {1, 200, 2, 2, 80, 1, DType::F16, 0, 0, 0.2},    {1, 256, 4, 1, 256, 1, DType::BF16},
    {1, 300, 4, 1, 256, 1, DType::BF16, 100, 0, .1}, {1, 256, 4, 2, 192, 1, DType::F16},
    {1, 200, 4, 2, 128, 1, DType::BF16, 0, 3.0},     {1, 256, 4, 2, 256, 1, DType::BF16, 60, 3.0, 0.1},
};

TEST(FusedAttention, KnowsWindowsScalesCapsAndWideHeads) {
  TANDEM_NEEDS_GPU();
  const bool hopper = devices().front().major == 9;
  for (const Case& c : kFamilies) {
    if (c.head_dim > kFusedHeadDim && !hopper) continue;
    SCOPED_TRACE(c.describe());
    expect_as_reference(attention_call(c), attention_slack(c.dtype), "cudnn.attention");
    if (c.softcap == 0)
      expect_as_reference(attention_grad_call(c), 2 * attention_slack(c.dtype), "cudnn.attention_grad");
    if (HasFatalFailure()) return;
  }
}

// Products of normals of deviation 30 reach into the thousands: exp of a score alone would overflow.
TEST(FusedAttention, StaysFiniteForLargeScores) {
  TANDEM_NEEDS_GPU();
  expect_as_reference(attention_call({1, 128, 2, 2, 64, 1, DType::BF16}, 30), 0.5, "cudnn.attention");
}

using DevicePointer = std::unique_ptr<void, decltype(&cudaFree)>;

DevicePointer on_device(size_t size, const void* bytes = nullptr) {
  void* pointer = nullptr;
  check(cudaMalloc(&pointer, size), "cudaMalloc");
  if (bytes != nullptr) check(cudaMemcpy(pointer, bytes, size, cudaMemcpyHostToDevice), "cudaMemcpy");
  return {pointer, &cudaFree};
}

HostTensor gradient_on_gpu(const Call& call, const FusedAttention& shape) {
  std::vector<DevicePointer> in;
  for (const HostTensor& tensor : call.in) in.push_back(on_device(tensor.bytes.size(), tensor.bytes.data()));
  HostTensor result(call.out[0].dtype, call.out[0].shape);
  const DevicePointer dqkv = on_device(result.bytes.size());
  const size_t bytes = fused_attention_grad_workspace(shape);
  const DevicePointer workspace = on_device(bytes);
  run_fused_attention_grad(shape, {in[0].get(), in[1].get(), in[2].get(), in[3].get(), dqkv.get()},
                           {static_cast<std::byte*>(workspace.get()), bytes}, nullptr);
  check(cudaMemcpy(result.bytes.data(), dqkv.get(), result.bytes.size(), cudaMemcpyDeviceToHost),
        "cudaMemcpy");
  return result;
}

TEST(FusedAttentionGrad, IsTheSameMadeSomeSequencesAtATime) {
  TANDEM_NEEDS_GPU();
  const Case c{6, 128, 4, 2, 64, 1, DType::BF16};
  const Call call = attention_grad_call(c);
  FusedAttention shape = shape_of(c);
  const HostTensor whole = gradient_on_gpu(call, shape);
  for (const int64_t sequences : {1, 2, 4}) {  // 4 does not divide the batch: 3 at a time
    shape.max_scores = sequences * c.heads * c.tokens * c.tokens;
    EXPECT_EQ(gradient_on_gpu(call, shape), whole) << sequences << " at a time";
  }
}

TEST(FusedAttentionGrad, MatchesTheReferenceWithoutAFixedOrder) {
  TANDEM_NEEDS_GPU();
  const Case c{2, 256, 4, 2, 64, 1, DType::BF16};
  const Call call = attention_grad_call(c);
  FusedAttention shape = shape_of(c);
  shape.deterministic = false;
  const auto want = cpu::run(cpu::reference_kernel(Op::AttentionGrad), call, cpu::pool_of(1));
  expect_near(gradient_on_gpu(call, shape), want[0], attention_slack(c.dtype), "dqkv");
}

TEST(FusedAttention, LeavesOtherShapesAndTypesToOtherKernels) {
  FusedAttention shape{.batch = 2, .time = 1024, .heads = 12, .kv_heads = 4, .head_dim = 64};
  EXPECT_TRUE(fused_attention_supported(shape));
  shape.type = DType::F32;
  EXPECT_FALSE(fused_attention_supported(shape));
  shape.type = DType::F16;
  for (const int64_t head_dim : {20, 136}) {
    shape.head_dim = head_dim;
    EXPECT_FALSE(fused_attention_supported(shape)) << head_dim;
  }
  shape.head_dim = 128;
  EXPECT_TRUE(fused_attention_supported(shape));
  for (const int64_t time : {1, 100, 1000}) {
    shape.time = time;
    EXPECT_TRUE(fused_attention_supported(shape)) << time;
    EXPECT_TRUE(fused_attention_grad_supported(shape)) << time;
    shape.causal = false;  // would see what is appended
    EXPECT_FALSE(fused_attention_grad_supported(shape)) << time;
    shape.causal = true;
  }
}

TEST(FusedAttentionGrad, BoundsItsScratchByTheScoresAtOnce) {
  FusedAttention shape{.batch = 4, .time = 4096, .heads = 32, .kv_heads = 8, .head_dim = 64};
  const size_t whole_scores = size_t{4} * 32 * 4096 * 4096 * 2;
  shape.max_scores = int64_t{1} << 29;
  EXPECT_LT(fused_attention_grad_workspace(shape), size_t{5} << 28);
  shape.max_scores = int64_t{1} << 40;
  EXPECT_GT(fused_attention_grad_workspace(shape), whole_scores);
}

TEST(FusedAttentionGrad, WorksInTheScratchItIsGiven) {
  KernelRegistry registry;
  add_fused_attention_kernels(registry);
  const Kernel& kernel = registry.by_name("cudnn.attention_grad");
  const TensorType qkv{DType::BF16, {32, 1024, 2304}}, out{DType::BF16, {32, 1024, 768}},
      lse{DType::F32, {32, 12, 1024}};
  const auto workspace = [&](Attrs attrs) {
    return kernel.workspace({Op::AttentionGrad, {out, qkv, out, lse}, {qkv}, &attrs}, 1);
  };
  const Attrs fastest{{"heads", 12}, {"kv_heads", 12}, {"causal", 1}};
  Attrs limited = fastest;
  limited.set("scratch", int64_t{512} << 20);
  EXPECT_GT(workspace(fastest), size_t{800} * 1000 * 1000);
  EXPECT_LT(workspace(limited), size_t{512} << 20);
}

}  // namespace
}  // namespace tandem::cuda
