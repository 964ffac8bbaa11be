// The tiled kernels against the reference, which does all arithmetic in double. Inputs are standard normals,
// so scores, outputs and gradients are of order one, and fp32 sums of so many terms are right to 1e-5. A
// missing key, head or factor would show as 1e-2 or more.
#include "tandem/kernels/cuda/attention/attention_call_test.h"

namespace tandem::cuda {
namespace {

using Case = cpu::AttentionCase;

// Every length, around the tiles of 32 and 64, with every padded head size; groupings, masks and types take
// turns.
std::vector<Case> ragged_cases() {
  std::vector<Case> cases;
  const std::pair<int64_t, int64_t> heads[] = {{1, 1}, {2, 1}, {2, 2}, {4, 2}, {3, 1}};
  size_t n = 0;
  for (const int64_t tokens : {1, 33, 64, 130}) {
    for (const int64_t head_dim : {16, 20, 64, 80, 128, 192, 256}) {
      const auto [num_heads, kv_heads] = heads[n % 5];
      cases.push_back({tokens < 64 ? 2 : 1, tokens, num_heads, kv_heads, head_dim, n % 3 != 0,
                       n % 2 == 0 ? DType::F32 : kStorage[n % 3]});
      ++n;
    }
  }
  for (const DType dtype : kStorage) {
    for (const int64_t causal : {0, 1}) cases.push_back({2, 70, 4, 2, 24, causal, dtype});
  }
  return cases;
}

TEST(TiledAttention, MatchesReferenceOverRaggedShapes) {
  TANDEM_NEEDS_GPU();
  for (const Case& c : ragged_cases()) {
    SCOPED_TRACE(c.describe());
    expect_as_reference(attention_call(c), 1e-5, "cuda.attention");
    if (HasFatalFailure()) return;
  }
}

TEST(TiledAttentionGrad, MatchesReferenceOverRaggedShapes) {
  TANDEM_NEEDS_GPU();
  for (const Case& c : ragged_cases()) {
    SCOPED_TRACE(c.describe());
    expect_as_reference(attention_grad_call(c), 3e-5, "cuda.attention_grad");
    if (HasFatalFailure()) return;
  }
}

// Windows smaller than a tile, of a tile, of several and of all; caps, scales and segments, one by one and
// together.
std::vector<Case> families_cases() {
  std::vector<Case> cases;
  for (const int64_t head_dim : {40, 128, 256}) {
    for (const int64_t window : {1, 20, 64, 100, 400})
      cases.push_back({2, 210, 4, 2, head_dim, 1, DType::F32, window});
    cases.push_back({1, 150, 2, 2, head_dim, 1, DType::BF16, 0, 2.0});
    cases.push_back({1, 150, 2, 1, head_dim, 0, DType::F32, 0, 0, 0.07});
    cases.push_back({2, 200, 2, 1, head_dim, 1, DType::F32, 0, 0, 0, true});
    cases.push_back({2, 200, 2, 1, head_dim, 0, DType::F16, 0, 0, 0, true});
    cases.push_back({2, 200, 4, 2, head_dim, 1, DType::F32, 50, 3.0, 0.2, true});
  }
  return cases;
}

TEST(TiledAttention, KnowsWindowsCapsScalesAndSegments) {
  TANDEM_NEEDS_GPU();
  for (const Case& c : families_cases()) {
    SCOPED_TRACE(c.describe());
    expect_as_reference(attention_call(c), 1e-5, "cuda.attention");
    expect_as_reference(attention_grad_call(c), 3e-5, "cuda.attention_grad");
    if (HasFatalFailure()) return;
  }
}

TEST(TiledAttention, MatchesReferenceOverManyTiles) {
  TANDEM_NEEDS_GPU();
  for (const int64_t causal : {0, 1}) {
    const Case c{1, 600, 2, 1, 16, causal, DType::F32};
    expect_as_reference(attention_call(c), 1e-5, "cuda.attention");
    expect_as_reference(attention_grad_call(c), 3e-5, "cuda.attention_grad");
  }
}

// Products of normals of deviation 30 reach into the thousands: exp of a score alone would overflow, and fp32
// knows a score to some 1e-3, which is then a relative error of its weight.
TEST(TiledAttention, StaysFiniteForLargeScores) {
  TANDEM_NEEDS_GPU();
  expect_as_reference(attention_call({1, 200, 2, 1, 32, 1, DType::F32}, 30), 5e-2, "cuda.attention");
}

}  // namespace
}  // namespace tandem::cuda
