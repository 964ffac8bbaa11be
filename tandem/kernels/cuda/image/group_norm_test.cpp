#include <cmath>

#include "tandem/kernels/cuda/kernel_test.h"

namespace tandem::cuda {
namespace {

struct Case {
  Shape x;
  int64_t groups;
};
const std::vector<Case> kCases = {{{3, 7, 5, 1}, 1},    {{2, 8, 8, 3}, 3},   {{2, 8, 8, 6}, 2},
                                  {{2, 7, 5, 16}, 4},   {{2, 8, 8, 33}, 11}, {{70, 3, 2, 12}, 3},
                                  {{1, 40, 30, 64}, 1}, {{4, 1, 1, 10}, 2}};

TEST(CudaGroupNorm, MatchesReference) {
  TANDEM_NEEDS_GPU();
  for (const DType storage : kStorage) {
    for (const Case& c : kCases) {
      SCOPED_TRACE(fmt::format("{} {} in {} groups", dtype_name(storage), to_string(c.x), c.groups));
      const Shape channels{c.x.last()};
      const TensorType stats{DType::F32, {c.x[0] * c.groups}}, sums{DType::F32, channels};
      const HostTensor x = random_tensor(storage, c.x, 1, 2, 0.5);
      const HostTensor gamma = random_tensor(storage, channels, 2, 0.5, 1);
      const Attrs attrs{{"eps", 1e-3}, {"groups", c.groups}};
      const double slack = 2e-5 + (is_half(storage) ? cpu::relative_tolerance(storage) : 0);
      const Call forward{Op::GroupNorm,
                         {x, gamma, random_tensor(storage, channels, 3)},
                         {x.type, stats, stats},
                         {-1, -1, -1},
                         attrs};
      expect_as_reference(forward, slack);
      const auto made = cpu::run(cpu::reference_kernel(Op::GroupNorm), forward, cpu::pool_of(1));
      expect_as_reference({Op::GroupNormGrad,
                           {random_tensor(storage, c.x, 4), x, gamma, made[1], made[2],
                            random_tensor(DType::F32, channels, 5), random_tensor(DType::F32, channels, 6)},
                           {x.type, sums, sums},
                           {-1, 5, 6},
                           attrs},
                          slack + 1e-4);
    }
  }
}

}  // namespace
}  // namespace tandem::cuda
