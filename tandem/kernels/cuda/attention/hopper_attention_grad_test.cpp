// The gradient of attention on Hopper's matrix units against the reference, which does all arithmetic in
// double, and twice, which must give the same bits.
#include "tandem/kernels/cuda/attention/hopper_attention_grad.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "tandem/kernels/cuda/attention/attention_call_test.h"
#include "tandem/kernels/cuda/register.h"

namespace tandem::cuda {
namespace {

using Case = cpu::AttentionCase;

// Asks the machine and the build, not the registry: where the kernel should be and is not, tests fail.
bool is_for_hopper() {
  const std::vector<Device> found = devices();
  return has_hopper_code() &&
         std::all_of(found.begin(), found.end(), [](const Device& device) { return device.major == 9; });
}

#define TANDEM_NEEDS_HOPPER() \
  TANDEM_NEEDS_GPU();         \
  if (!is_for_hopper()) GTEST_SKIP() << "no Hopper, or built without code for it"

void expect_all_as_reference(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    SCOPED_TRACE(c.describe());
    expect_as_reference(attention_grad_call(c), attention_slack(c.dtype), "hopper.attention_grad");
    if (testing::Test::HasFatalFailure()) return;
  }
}

// Lengths around the tiles of 64 and the blocks of 128, so that a block's second half has no rows, some or
// all; one tile of columns and more than the ring of stages has; groups of one to seven heads, whose blocks
// of keys go over several heads, the second half skipping a tile of each.
std::vector<Case> ragged_cases() {
  std::vector<Case> cases;
  const std::pair<int64_t, int64_t> heads[] = {{1, 1}, {2, 1}, {3, 3}, {7, 1}, {6, 2}};
  size_t n = 0;
  for (const int64_t tokens : {1, 63, 64, 65, 128, 130, 192, 200, 385, 577}) {
    for (const int64_t causal : {0, 1}) {
      const auto [num_heads, kv_heads] = heads[n % 5];
      cases.push_back({tokens < 200 ? 2 : 1, tokens, num_heads, kv_heads, 64, causal,
                       n % 3 == 1 ? DType::F16 : DType::BF16});
      ++n;
    }
  }
  return cases;
}

TEST(HopperAttentionGrad, MatchesTheReferenceOverRaggedShapes) {
  TANDEM_NEEDS_HOPPER();
  expect_all_as_reference(ragged_cases());
}

// More pieces than any GPU has multiprocessors: a block takes several, of different sizes.
TEST(HopperAttentionGrad, MatchesTheReferenceWhereABlockTakesSeveralPieces) {
  TANDEM_NEEDS_HOPPER();
  expect_all_as_reference({{5, 130, 40, 40, 64, 1, DType::BF16}, {12, 64, 64, 32, 64, 0, DType::F16}});
}

// The sums are of what is stored, so they are held to that, and to fp32.
TEST(HopperAttentionGrad, SumsTheColumnsOfWhatItWrites) {
  TANDEM_NEEDS_HOPPER();
  // The last: more pieces than multiprocessors, and more tiles than are added at once.
  for (const Case& c : {Case{3, 200, 6, 2, 64, 1, DType::BF16}, Case{2, 65, 3, 3, 64, 0, DType::F16},
                        Case{15, 130, 40, 40, 64, 1, DType::BF16}}) {
    SCOPED_TRACE(c.describe());
    const int64_t width = c.qkv().shape.last();
    const HostTensor acc = random_tensor(DType::F32, Shape({width}), 3);
    const Call plain = attention_grad_call(c);
    for (const bool fresh : {false, true}) {
      Call call = with_sums(plain, acc);
      if (fresh) call.attrs.set("fresh", int64_t{1});
      const std::vector<HostTensor> made = run_on_gpu(call, "hopper.attention_grad");
      EXPECT_EQ(made[0].bytes, run_on_gpu(plain, "hopper.attention_grad")[0].bytes);
      EXPECT_EQ(made[1].bytes, run_on_gpu(call, "hopper.attention_grad")[1].bytes);
      for (int64_t column = 0; column < width; ++column) {
        double sum = fresh ? 0 : acc.at(column), size = std::abs(sum);
        for (int64_t i = column; i < made[0].type.shape.elems(); i += width) {
          sum += made[0].at(i);
          size += std::abs(made[0].at(i));
        }
        ASSERT_NEAR(made[1].at(column), sum, 1e-6 * size) << column;
      }
    }
  }
}

// Products of normals of deviation 30 reach into the thousands: exp of a score alone would overflow.
TEST(HopperAttentionGrad, StaysFiniteForLargeScores) {
  TANDEM_NEEDS_HOPPER();
  // Without a mask, the zeros behind the last key would have the largest weight of all.
  for (const Case& c : {Case{1, 128, 2, 2, 64, 1, DType::BF16}, Case{1, 1, 8, 8, 64, 0, DType::F16}}) {
    const HostTensor dqkv = run_on_gpu(attention_grad_call(c, 30), "hopper.attention_grad")[0];
    for (int64_t i = 0; i < dqkv.type.shape.elems(); ++i) ASSERT_TRUE(std::isfinite(dqkv.at(i))) << i;
  }
}

TEST(HopperAttentionGrad, IsForHeadsOf64In16Bits) {
  FusedAttention shape{.batch = 2, .time = 1000, .heads = 12, .kv_heads = 4, .head_dim = 64};
  EXPECT_TRUE(hopper_attention_grad_supported(shape));
  shape.type = DType::F16;
  EXPECT_TRUE(hopper_attention_grad_supported(shape));
  shape.type = DType::F32;
  EXPECT_FALSE(hopper_attention_grad_supported(shape));
  shape.type = DType::BF16;
  shape.head_dim = 128;
  EXPECT_FALSE(hopper_attention_grad_supported(shape));
}

// Two numbers for each query, of whole tiles.
TEST(HopperAttentionGrad, NeedsNextToNoScratch) {
  const FusedAttention shape{.batch = 4, .time = 4096, .heads = 32, .kv_heads = 8, .head_dim = 64};
  const size_t of_queries = size_t{4} * 32 * 4096 * 2 * sizeof(float);
  EXPECT_EQ(hopper_attention_grad_workspace(shape, false), of_queries);
  EXPECT_EQ(hopper_attention_grad_workspace(shape, true),
            of_queries + size_t{4} * 64 * 48 * 64 * sizeof(float))
      << "and a row of sums for each tile of tokens";
  const FusedAttention ragged{.batch = 1, .time = 65, .heads = 1, .kv_heads = 1, .head_dim = 64};
  EXPECT_EQ(hopper_attention_grad_workspace(ragged, false), size_t{128} * 2 * sizeof(float));
}

// A plan is made for a Hopper where there is no GPU.
TEST(HopperAttentionGrad, IsChosenForHopper) {
  if (!is_for_hopper()) GTEST_SKIP() << "no Hopper, or built without code for it";
  const Case c{4, 4096, 32, 8, 64, 1, DType::BF16};
  const Attrs attrs = c.attrs();
  const CallSignature call{Op::AttentionGrad, {c.out(), c.qkv(), c.out(), c.lse()}, {c.qkv()}, &attrs};
  EXPECT_EQ(all_kernels().choose(call).name, "hopper.attention_grad");

  // Sums are asked of attention's gradient where the kernel that makes them will be chosen.
  ASSERT_TRUE(hopper_sums_for_bias(c.qkv(), attrs));
  Attrs with_sums = attrs;
  with_sums.set("sums", int64_t{1});
  const TensorType bias{DType::F32, Shape({c.qkv().shape.last()})};
  const CallSignature summing{
      Op::AttentionGrad, {c.out(), c.qkv(), c.out(), c.lse(), bias}, {c.qkv(), bias}, &with_sums};
  EXPECT_EQ(all_kernels().choose(summing).name, "hopper.attention_grad");
}

}  // namespace
}  // namespace tandem::cuda
