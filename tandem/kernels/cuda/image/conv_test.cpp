// Convolutions on the GPU against the reference over ragged shapes: through cuDNN, and as products.
#include <cmath>

#include "tandem/kernels/cuda/image/conv_engine.h"
#include "tandem/kernels/cuda/kernel_test.h"
#include "tandem/kernels/cuda/register.h"

namespace tandem::cuda {
namespace {

struct Case {
  int64_t images, height, width, in, out, kernel, stride, pad;

  Shape x() const { return {images, height, width, in}; }
  Shape w() const { return {out, kernel, kernel, in}; }
  Shape y() const {
    return {images, (height + 2 * pad - kernel) / stride + 1, (width + 2 * pad - kernel) / stride + 1, out};
  }
  double weight_scale() const { return 1 / std::sqrt(static_cast<double>(kernel * kernel * in)); }
  bool is_product() const { return kernel == 1 && stride == 1 && pad == 0; }
  Attrs attrs() const { return {{"stride", stride}, {"pad", pad}}; }
};

const std::vector<Case> kCases = {
    {3, 7, 5, 1, 1, 3, 1, 1},     {3, 7, 5, 3, 16, 3, 2, 1},   {2, 8, 8, 5, 33, 5, 1, 2},
    {2, 8, 8, 16, 5, 1, 1, 0},    {2, 8, 8, 16, 24, 1, 1, 0},  {2, 8, 8, 16, 24, 1, 2, 0},
    {2, 1, 1, 3, 16, 3, 1, 1},    {2, 1, 1, 33, 3, 1, 2, 2},   {20, 3, 4, 16, 16, 3, 1, 1},
    {2, 40, 17, 8, 20, 3, 1, 1},  {1, 6, 6, 150, 70, 3, 1, 1}, {1, 5, 5, 9, 9, 2, 3, 0},
    {2, 9, 6, 4, 6, 3, 3, 2},     {2, 23, 19, 3, 64, 7, 2, 3}, {4, 16, 16, 64, 64, 3, 1, 1},
    {4, 16, 16, 64, 128, 3, 2, 1}};

std::string name(const Case& c) {
  return fmt::format("x {} w {} stride {} pad {}", to_string(c.x()), to_string(c.w()), c.stride, c.pad);
}

// What rounding of products and their fp32 sums leaves, for sums of about `terms` numbers around 1.
double slack(DType storage, int64_t terms) {
  return 1e-5 + 2e-6 * std::sqrt(static_cast<double>(terms)) + (is_half(storage) ? 1e-3 : 0);
}

Call forward(const Case& c, DType storage) {
  return {Op::Conv2d,
          {random_tensor(storage, c.x(), 1), random_tensor(storage, c.w(), 2, c.weight_scale())},
          {{storage, c.y()}},
          {-1},
          c.attrs()};
}

Call grad_input(const Case& c, DType storage) {
  Attrs attrs = c.attrs();
  attrs.set("height", c.height);
  attrs.set("width", c.width);
  return {Op::Conv2dGradInput,
          {random_tensor(storage, c.y(), 1), random_tensor(storage, c.w(), 2, c.weight_scale())},
          {{storage, c.x()}},
          {-1},
          attrs};
}

Call grad_weight(const Case& c, DType storage, bool fresh) {
  Attrs attrs = c.attrs();
  if (fresh) attrs.set("fresh", int64_t{1});
  return {Op::Conv2dGradWeight,
          {random_tensor(DType::F32, c.w(), 1), random_tensor(storage, c.x(), 2),
           random_tensor(storage, c.y(), 3)},
          {{DType::F32, c.w()}},
          {0},
          attrs};
}

// Calls fn(kernel's prefix, storage, case) for both ways to run it.
template <typename Fn>
void for_both_ways(const Fn& fn) {
  for (const DType storage : kStorage) {
    for (const Case& c : kCases) {
      SCOPED_TRACE(fmt::format("{} {}", dtype_name(storage), name(c)));
      fn("cuda.", storage, c);
      if (is_half(storage) && !c.is_product()) fn("cudnn.", storage, c);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(CudaConv, ForwardMatchesReference) {
  TANDEM_NEEDS_GPU();
  for_both_ways([](const std::string& prefix, DType storage, const Case& c) {
    expect_as_reference(forward(c, storage), slack(storage, c.in * c.kernel * c.kernel), prefix + "conv2d");
  });
}

TEST(CudaConv, AddsABiasBeforeItRounds) {
  TANDEM_NEEDS_GPU();
  for (const DType storage : kStorage) {
    for (const Case& c : kCases) {
      SCOPED_TRACE(fmt::format("{} {}", dtype_name(storage), name(c)));
      Call call = forward(c, storage);
      call.in.push_back(random_tensor(storage, {c.out}, 3));
      expect_as_reference(call, slack(storage, c.in * c.kernel * c.kernel));
    }
  }
}

TEST(CudaConv, InputGradientMatchesReference) {
  TANDEM_NEEDS_GPU();
  for_both_ways([](const std::string& prefix, DType storage, const Case& c) {
    expect_as_reference(grad_input(c, storage), slack(storage, c.out * c.kernel * c.kernel),
                        prefix + "conv2d_grad_input");
  });
}

// cuDNN rounds the sum to the storage type before it is added.
TEST(CudaConv, WeightGradientIsAddedOrWritten) {
  TANDEM_NEEDS_GPU();
  for_both_ways([](const std::string& prefix, DType storage, const Case& c) {
    const int64_t terms = c.y().rows();
    const double rounding = cpu::relative_tolerance(storage) * 6 * std::sqrt(static_cast<double>(terms));
    for (const bool fresh : {false, true}) {
      expect_as_reference(grad_weight(c, storage, fresh),
                          slack(DType::F32, terms) + (prefix == "cudnn." ? rounding : 0),
                          prefix + "conv2d_grad_weight");
    }
  });
}

// More patches than fit into the scratch: several products, the last one smaller.
TEST(CudaConv, ProductsOfSomePatchesAtATimeGiveTheWhole) {
  TANDEM_NEEDS_GPU();
  const Case c{3, 96, 90, 80, 8, 3, 1, 1};
  ASSERT_GT(c.y().rows() * c.kernel * c.kernel * c.in * 4, int64_t{64} << 20);
  expect_as_reference(forward(c, DType::F32), 1e-4, "cuda.conv2d");
  expect_as_reference(grad_input(c, DType::F32), 1e-4, "cuda.conv2d_grad_input");
  expect_as_reference(grad_weight(c, DType::F32, true), 3e-3, "cuda.conv2d_grad_weight");
}

TEST(CudaConv, TakesCudnnForSixteenBitsAndProductsForTheRest) {
  const KernelRegistry registry = all_kernels();
  const auto chosen = [&](const Call& call) { return registry.choose(call.signature()).name; };
  const Case wide{4, 16, 16, 64, 64, 3, 1, 1}, narrow{2, 8, 8, 16, 24, 1, 1, 0};
  EXPECT_EQ(chosen(forward(wide, DType::BF16)), "cudnn.conv2d");
  EXPECT_EQ(chosen(grad_input(wide, DType::F16)), "cudnn.conv2d_grad_input");
  EXPECT_EQ(chosen(grad_weight(wide, DType::BF16, true)), "cudnn.conv2d_grad_weight");
  EXPECT_EQ(chosen(forward(wide, DType::F32)), "cuda.conv2d");
  EXPECT_EQ(chosen(forward(narrow, DType::BF16)), "cuda.conv2d");
  Call biased = forward(wide, DType::BF16);
  biased.in.push_back(random_tensor(DType::BF16, {wide.out}, 3));
  EXPECT_EQ(chosen(biased), "cuda.conv2d");
}

TEST(CudaConv, RefusesEnginesThatAddInAnyOrderOrLoseDigits) {
  EXPECT_TRUE(is_exact_engine({}));
  const cudnnBackendNumericalNote_t fine[] = {CUDNN_NUMERICAL_NOTE_TENSOR_CORE};
  EXPECT_TRUE(is_exact_engine(fine));
  const cudnnBackendNumericalNote_t in_any_order[] = {CUDNN_NUMERICAL_NOTE_TENSOR_CORE,
                                                      CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC};
  EXPECT_FALSE(is_exact_engine(in_any_order));
  const cudnnBackendNumericalNote_t transforms[] = {CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4};
  EXPECT_FALSE(is_exact_engine(transforms));
}

}  // namespace
}  // namespace tandem::cuda
