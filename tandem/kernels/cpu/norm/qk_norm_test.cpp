// Norms of queries and keys: the fast kernels against the reference, and the reference against rms_norm.
#include "tandem/kernels/cpu/norm/qk_norm_case_test.h"

namespace tandem::cpu {
namespace {

using Case = QkNormCase;

std::vector<Case> cases() {
  std::vector<Case> cases;
  for (const DType storage : kStorage) {
    for (const bool all : {false, true}) {
      cases.push_back({1, 1, 1, 2, all, false, storage});
      cases.push_back({37, 4, 2, 40, all, true, storage});
      cases.push_back({130, 3, 1, 17, all, false, storage});
      cases.push_back({5, 2, 2, 256, all, true, storage});
    }
  }
  return cases;
}

TEST(QkNorm, MatchesReferenceOverRaggedShapes) {
  for (const Case& c : cases()) {
    const double ulp = is_half(c.storage) ? relative_tolerance(c.storage) : 0;
    expect_matches_reference(c.forward(), 4e-5 + ulp);
    expect_matches_reference(c.backward(), 1e-4 + 4 * ulp);
    EXPECT_EQ(run_fast(c.forward(0)), run_fast(c.forward())) << "in place";
    EXPECT_EQ(run_fast(c.backward(0)), run_fast(c.backward())) << "in place";
  }
}

// One head of queries and one of keys: two rms norms side by side, and values that pass.
TEST(QkNorm, IsTheRmsNormOfEachKindAndLeavesValues) {
  const Case c{3, 1, 1, 8, false, true, DType::F32};
  const Call call = c.forward();
  const auto got = run_reference(call);
  for (int64_t row = 0; row < 3; ++row) {
    for (int64_t kind = 0; kind < 2; ++kind) {
      Call norm{Op::RmsNorm,
                {HostTensor(DType::F32, {1, 8}), call.in[static_cast<size_t>(1 + kind)]},
                {{DType::F32, {1, 8}}, {DType::F32, {1}}},
                {-1, -1},
                {{"eps", 1e-5}, {"plus_one", 1}}};
      for (int64_t i = 0; i < 8; ++i) ref::set(norm.in[0].arg(), i, call.in[0].at(row * 24 + kind * 8 + i));
      const auto want = run_reference(norm);
      for (int64_t i = 0; i < 8; ++i) EXPECT_EQ(got[0].at(row * 24 + kind * 8 + i), want[0].at(i));
    }
    for (int64_t i = 16; i < 24; ++i) EXPECT_EQ(got[0].at(row * 24 + i), call.in[0].at(row * 24 + i));
  }
}

}  // namespace
}  // namespace tandem::cpu
