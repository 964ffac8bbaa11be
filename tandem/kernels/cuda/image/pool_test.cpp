#include <cmath>
#include <limits>

#include "tandem/kernels/cuda/kernel_test.h"
#include "tandem/kernels/cuda/register.h"

namespace tandem::cuda {
namespace {

struct Case {
  Shape x;
  int64_t size, stride, pad;

  Shape y() const {
    return {x[0], (x[1] + 2 * pad - size) / stride + 1, (x[2] + 2 * pad - size) / stride + 1, x[3]};
  }
  Attrs attrs() const { return {{"size", size}, {"stride", stride}, {"pad", pad}}; }
  Attrs grad_attrs() const {
    Attrs attrs = this->attrs();
    attrs.set("height", x[1]);
    attrs.set("width", x[2]);
    return attrs;
  }
};

const std::vector<Case> kCases = {
    {{3, 7, 5, 1}, 2, 2, 0},    {{2, 8, 8, 3}, 3, 2, 1},  {{2, 7, 5, 16}, 3, 1, 1},
    {{1, 8, 8, 33}, 2, 2, 0},   {{2, 1, 1, 5}, 1, 1, 0},  {{1, 1, 1, 5}, 3, 2, 1},
    {{4, 30, 31, 40}, 3, 2, 1}, {{2, 9, 9, 20}, 5, 3, 2}, {{2, 9, 9, 8}, 2, 3, 0}};

Call maximum(const Case& c, DType storage) {
  return {Op::MaxPool2d,
          {random_tensor(storage, c.x, 1)},
          {{storage, c.y()}, {DType::I32, c.y()}},
          {-1, -1},
          c.attrs()};
}

TEST(CudaPool, MaximumAndItsGradientMatchReference) {
  TANDEM_NEEDS_GPU();
  for (const DType storage : kStorage) {
    for (const Case& c : kCases) {
      SCOPED_TRACE(fmt::format("{} {} size {} stride {} pad {}", dtype_name(storage), to_string(c.x), c.size,
                               c.stride, c.pad));
      const Call forward = maximum(c, storage);
      expect_as_reference(forward, 0);
      const auto results = cpu::run(cpu::reference_kernel(Op::MaxPool2d), forward, cpu::pool_of(1));
      expect_as_reference({Op::MaxPool2dGrad,
                           {random_tensor(storage, c.y(), 2), results[1]},
                           {{storage, c.x}},
                           {-1},
                           c.grad_attrs()},
                          1e-5);
    }
  }
}

TEST(CudaPool, AverageAndItsGradientMatchReference) {
  TANDEM_NEEDS_GPU();
  for (const DType storage : kStorage) {
    for (const Case& c : kCases) {
      SCOPED_TRACE(fmt::format("{} {}", dtype_name(storage), to_string(c.x)));
      const Shape y{c.x[0], c.x[3]};
      expect_as_reference({Op::GlobalAvgPool, {random_tensor(storage, c.x, 1)}, {{storage, y}}, {-1}, {}},
                          1e-6);
      expect_as_reference({Op::GlobalAvgPoolGrad,
                           {random_tensor(storage, y, 1)},
                           {{storage, c.x}},
                           {-1},
                           {{"height", c.x[1]}, {"width", c.x[2]}}},
                          1e-6);
    }
  }
}

TEST(CudaPool, FirstMaximumWinsAndNanWinsOverAll) {
  TANDEM_NEEDS_GPU();
  const float nan = std::numeric_limits<float>::quiet_NaN(), low = -std::numeric_limits<float>::infinity();
  HostTensor x(DType::F32, {1, 2, 6, 1});
  const float values[] = {5, 5, 1, nan, low, low, 5, 5, 9, nan, low, low};
  std::copy_n(reinterpret_cast<const std::byte*>(values), sizeof(values), x.bytes.data());
  const auto results = run_on_gpu({Op::MaxPool2d,
                                   {x},
                                   {{DType::F32, {1, 1, 3, 1}}, {DType::I32, {1, 1, 3, 1}}},
                                   {-1, -1},
                                   {{"size", int64_t{2}}, {"stride", int64_t{2}}, {"pad", int64_t{0}}}});
  EXPECT_EQ(results[1].at(0), 0);
  EXPECT_EQ(results[1].at(1), 3);
  EXPECT_EQ(results[1].at(2), 4);
  EXPECT_EQ(results[0].at(0), 5);
  EXPECT_TRUE(std::isnan(results[0].at(1)));
  EXPECT_EQ(results[0].at(2), static_cast<double>(low));
}

// A model made by hand may lack the attributes; then there is no kernel for it.
TEST(CudaPool, GradientWantsToKnowTheWindows) {
  const Call call{Op::MaxPool2dGrad,
                  {random_tensor(DType::F32, {1, 2, 2, 1}, 1), random_ids({1, 2, 2, 1}, 4, 2)},
                  {{DType::F32, {1, 4, 4, 1}}},
                  {-1},
                  {{"height", int64_t{4}}, {"width", int64_t{4}}}};
  EXPECT_THROW(all_kernels().choose(call.signature()), DeviceError);
}

}  // namespace
}  // namespace tandem::cuda
