#include "tandem/kernels/cpu/norm/qk_norm_case_test.h"
#include "tandem/kernels/cuda/kernel_test.h"

namespace tandem::cuda {
namespace {

// Heads of whole packs and not, one team and many a warp, more heads than the gradient's blocks take at once.
std::vector<cpu::QkNormCase> cases() {
  std::vector<cpu::QkNormCase> cases;
  for (const DType storage : kStorage) {
    for (const bool all : {false, true}) {
      cases.push_back({1, 1, 1, 2, all, false, storage});
      cases.push_back({37, 4, 2, 40, all, true, storage});
      cases.push_back({130, 3, 1, 17, all, false, storage});
      cases.push_back({5, 2, 2, 256, all, true, storage});
      cases.push_back({700, 16, 8, 128, all, false, storage});
      cases.push_back({300, 4, 1, 64, all, true, storage});
    }
  }
  return cases;
}

TEST(QkNorm, MatchesReferenceOverRaggedShapes) {
  TANDEM_NEEDS_GPU();
  for (const cpu::QkNormCase& c : cases()) {
    SCOPED_TRACE(fmt::format("{} tokens, {}/{} heads of {}, all {}, {}", c.rows, c.heads, c.kv_heads,
                             c.head_dim, c.all, dtype_name(c.storage)));
    expect_as_reference(c.forward(), 1e-5);
    expect_as_reference(c.forward(0), 1e-5);
    expect_as_reference(c.backward(), 2e-4);
    expect_as_reference(c.backward(0), 2e-4);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace tandem::cuda
