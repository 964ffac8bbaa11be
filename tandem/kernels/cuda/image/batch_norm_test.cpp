// BatchNorm on the GPU against the reference over ragged shapes, alone, with what stands behind it, and over
// the rows of several ranks.
#include <cmath>

#include "tandem/kernels/cuda/kernel_test.h"

namespace tandem::cuda {
namespace {

const std::vector<Shape>
    kShapes = {{3, 7, 5, 1},    {2, 8, 8, 3},     {4, 1, 1, 5},     {2, 7, 5, 16},
               {1, 8, 8, 33},   {5, 40, 30, 16},  {300, 1, 1, 100}, {1, 1, 1, 4},
               {2, 9, 11, 264}, {40, 16, 16, 64}, {9, 64, 64, 8}};  // more rows than blocks of the fewest

struct Data {
  DType storage;
  Shape shape, channels;
  HostTensor x, gamma, beta, running_mean, running_var, residual, dy, acc_dgamma, acc_dbeta;

  Data(DType type, const Shape& s, double mean = 0.5)
      : storage(type),
        shape(s),
        channels{s.last()},
        x(random_tensor(type, s, 1, 2, mean)),
        gamma(random_tensor(type, channels, 2, 0.5, 1)),
        beta(random_tensor(type, channels, 3)),
        running_mean(random_tensor(DType::F32, channels, 4)),
        running_var(random_tensor(DType::F32, channels, 5, 0.1, 1.5)),
        residual(random_tensor(type, s, 6)),
        dy(random_tensor(type, s, 7)),
        acc_dgamma(random_tensor(DType::F32, channels, 8)),
        acc_dbeta(random_tensor(DType::F32, channels, 9)) {}

  TensorType row_type() const { return x.type; }
  TensorType channel_type() const { return {DType::F32, channels}; }

  Call forward() const {
    return {Op::BatchNorm,
            {x, gamma, beta, running_mean, running_var},
            {row_type(), channel_type(), channel_type(), channel_type(), channel_type()},
            {-1, -1, -1, 3, 4},
            {{"eps", 1e-3}, {"momentum", 0.1}}};
  }
  Call infer() const {
    return {
        Op::BatchNormInfer, {x, gamma, beta, running_mean, running_var}, {row_type()}, {-1}, {{"eps", 1e-3}}};
  }
  Call gradient() const {
    const auto made = cpu::run(cpu::reference_kernel(Op::BatchNorm), forward(), cpu::pool_of(1));
    return {Op::BatchNormGrad,
            {dy, x, gamma, made[1], made[2], acc_dgamma, acc_dbeta},
            {row_type(), channel_type(), channel_type()},
            {-1, 5, 6},
            {{"eps", 1e-3}, {"momentum", 0.1}}};
  }
};

Call with_relu(Call call) {
  call.attrs.set("relu", int64_t{1});
  return call;
}
Call with_residual(Call call, const Data& data) {
  call.in.push_back(data.residual);
  return with_relu(std::move(call));
}

// fp32 sums of that many rows; in 16 bits also a value that rounds the other way before it is added to.
double slack(DType storage, int64_t rows, bool rounds_twice = false) {
  const double sums = 2e-5 + 1e-6 * std::sqrt(static_cast<double>(rows));
  return sums + (is_half(storage) ? cpu::relative_tolerance(storage) * (rounds_twice ? 8 : 1) : 0);
}

template <typename Fn>
void for_all(const Fn& fn) {
  for (const DType storage : kStorage) {
    for (const Shape& shape : kShapes) {
      SCOPED_TRACE(fmt::format("{} {}", dtype_name(storage), to_string(shape)));
      fn(Data(storage, shape));
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(CudaBatchNorm, MatchesReference) {
  TANDEM_NEEDS_GPU();
  for_all([](const Data& data) {
    expect_as_reference(data.forward(), slack(data.storage, data.shape.rows()));
    expect_as_reference(data.infer(), slack(data.storage, 1));
    Call gradient = data.gradient();
    expect_as_reference(gradient, slack(data.storage, data.shape.rows()) + 1e-4);
    gradient.attrs.set("fresh", int64_t{1});
    expect_as_reference(gradient, slack(data.storage, data.shape.rows()) + 1e-4);
  });
}

// What the fused op gives is, bit for bit, what its parts give.
void expect_as_parts(const Call& plain, const Data& data, bool residual) {
  const auto fused = run_on_gpu(residual ? with_residual(plain, data) : with_relu(plain));
  auto parts = run_on_gpu(plain);
  if (residual) {
    parts[0] = run_on_gpu({Op::Add, {parts[0], data.residual}, {data.row_type()}, {-1}, {}})[0];
  }
  parts[0] = run_on_gpu({Op::Relu, {parts[0]}, {data.row_type()}, {-1}, {}})[0];
  EXPECT_EQ(fused, parts);
}

TEST(CudaBatchNorm, WithReluAndResidualHasTheBitsOfItsParts) {
  TANDEM_NEEDS_GPU();
  for_all([](const Data& data) {
    for (const bool residual : {false, true}) {
      expect_as_parts(data.forward(), data, residual);
      expect_as_parts(data.infer(), data, residual);
    }
    expect_as_reference(with_residual(data.forward(), data), slack(data.storage, data.shape.rows(), true));
    expect_as_reference(with_relu(data.infer()), slack(data.storage, 1, true));
  });
}

TEST(CudaBatchNorm, GradientThroughAReluHasTheBitsOfItsParts) {
  TANDEM_NEEDS_GPU();
  for_all([](const Data& data) {
    const auto y = run_on_gpu(with_relu(data.forward()));
    Call plain = data.gradient();
    plain.in[3] = y[1];
    plain.in[4] = y[2];
    Call fused = plain;
    fused.in.push_back(data.beta);
    plain.in[0] = run_on_gpu({Op::ReluGrad, {data.dy, y[0]}, {data.row_type()}, {-1}, {}})[0];
    EXPECT_EQ(run_on_gpu(with_relu(fused)), run_on_gpu(plain));
  });
}

TEST(CudaBatchNorm, KeepsTheVarianceOfValuesFarFromZero) {
  TANDEM_NEEDS_GPU();
  Data data(DType::F32, {64, 8, 8, 20}, 4096);
  data.gamma = random_tensor(DType::F32, data.channels, 2, 0, 1);
  expect_as_reference(data.forward(), 2e-3);  // the mean itself is rounded to fp32: 2^-12
  const auto want = cpu::run(cpu::reference_kernel(Op::BatchNorm), data.forward(), cpu::pool_of(1));
  expect_near(run_on_gpu(data.forward())[2], want[2], 1e-6, "rstd");
}

constexpr int64_t kRanks = 3;

// Ranks with parts of the rows each, from the statistics of each to the gradient of one.
TEST(CudaBatchNorm, OverTheRowsOfSeveralRanksMatchesReference) {
  TANDEM_NEEDS_GPU();
  for_all([](const Data& data) {
    const int64_t channels = data.shape.last();
    const TensorType pair{DType::F32, {2, channels}};
    const double tolerance = slack(data.storage, data.shape.rows()) + 1e-4;
    HostTensor parts(DType::F32, {2 * kRanks, channels});
    for (int64_t rank = 0; rank < kRanks; ++rank) {
      const auto x = random_tensor(data.storage, data.shape, 20 + static_cast<uint64_t>(rank), 2,
                                   static_cast<double>(rank));
      const Call stats{Op::BatchNormStats, {x}, {pair}, {-1}, {}};
      const double m2 = 1e-5 * static_cast<double>(data.shape.rows());
      expect_as_reference(stats, tolerance + m2);
      const auto made = run_on_gpu(stats);
      std::copy(made[0].bytes.begin(), made[0].bytes.end(),
                parts.bytes.begin() + rank * static_cast<int64_t>(made[0].bytes.size()));
    }
    Call apply = data.forward();
    apply.op = Op::BatchNormApply;
    apply.attrs.set("size", kRanks);
    apply.in.push_back(parts);
    expect_as_reference(apply, tolerance);

    const auto made = run_on_gpu(apply);
    Call sums{Op::BatchNormGradStats,
              {data.dy, data.x, made[1], made[2], data.acc_dgamma, data.acc_dbeta},
              {pair, data.channel_type(), data.channel_type()},
              {-1, 4, 5},
              {}};
    const double sum = 2e-6 * static_cast<double>(data.shape.rows());
    expect_as_reference(sums, tolerance + sum);
    sums.attrs.set("fresh", int64_t{1});
    expect_as_reference(sums, tolerance + sum);
    expect_as_reference({Op::BatchNormGradApply,
                         {data.dy, data.x, data.gamma, made[1], made[2], run_on_gpu(sums)[0]},
                         {data.row_type()},
                         {-1},
                         {{"size", kRanks}}},
                        tolerance);
  });
}

}  // namespace
}  // namespace tandem::cuda
