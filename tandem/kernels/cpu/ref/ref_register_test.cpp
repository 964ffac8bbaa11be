#include <gtest/gtest.h>

#include "tandem/kernels/cpu/register.h"

namespace tandem::cpu {
namespace {

// The session runs collectives itself; leaves and views are no work.
bool computes(Op op) { return !is_leaf(op) && !is_view(op) && !is_collective(op); }

TEST(ReferenceKernels, CoverEveryOpThatComputes) {
  const KernelRegistry registry = reference_kernels();
  for (int i = 0; i < kNumOps; ++i) {
    const Op op = static_cast<Op>(i);
    const auto kernels = registry.for_op(op);
    ASSERT_EQ(kernels.size(), computes(op) ? 1u : 0u) << op_name(op);
    if (computes(op)) {
      EXPECT_EQ(kernels[0]->name, "ref." + std::string(op_name(op)));
    }
  }
}

TEST(AllKernels, TryTheReferenceLast) {
  const KernelRegistry registry = all_kernels();
  for (int i = 0; i < kNumOps; ++i) {
    const Op op = static_cast<Op>(i);
    const auto kernels = registry.for_op(op);
    for (size_t k = 0; k < kernels.size(); ++k) {
      EXPECT_EQ(kernels[k]->name.starts_with("ref."), k + 1 == kernels.size()) << kernels[k]->name;
    }
  }
}

}  // namespace
}  // namespace tandem::cpu
