// Every reference gradient against central differences of its forward op, in double.
#include <gtest/gtest.h>

#include <functional>

#include "tandem/base/rng.h"
#include "tandem/kernels/cpu/ref/ref_kernel_run_test.h"

namespace tandem::cpu {
namespace {

using Values = std::vector<double>;

Values random_values(int64_t elems, uint64_t seed) {
  Values values;
  const Rng rng(seed, 0);
  for (int64_t i = 0; i < elems; ++i) values.push_back(2 * rng.uniform(static_cast<uint64_t>(i)) - 1);
  return values;
}

// d(weights . forward(x)) / dx
Values numeric_gradient(const std::function<Values(const Values&)>& forward, Values x,
                        const Values& weights) {
  constexpr double kStep = 1e-5;
  const auto loss = [&] {
    const Values y = forward(x);
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += y[i] * weights[i];
    return sum;
  };
  Values gradient;
  for (double& value : x) {
    const double at = value;
    value = at + kStep;
    const double above = loss();
    value = at - kStep;
    gradient.push_back((above - loss()) / (2 * kStep));
    value = at;
  }
  return gradient;
}

constexpr double kTolerance = 1e-8;

// Checks dx, dgamma and dbeta of a normalisation of x; `stats` is the number of elements of mean and rstd.
void check_norm(Op forward_op, Op backward_op, const Shape& shape, int64_t stats, const Attrs& attrs) {
  const bool centred = forward_op != Op::RmsNorm;
  const int64_t elems = shape.elems(), channels = shape.last();
  const Values x = random_values(elems, 1), gamma = random_values(channels, 2),
               beta = random_values(channels, 3);
  const Values dy = random_values(elems, 4), zeros(static_cast<size_t>(channels), 0.0);
  const auto forward = [&](const Values& x, const Values& gamma, const Values& beta) {
    KernelRun run(forward_op, attrs);
    run.in(shape, x).in({channels}, gamma);
    if (centred) run.in({channels}, beta);
    if (forward_op == Op::BatchNorm) run.in({channels}, zeros).in({channels}, zeros);
    run.out(shape).out({stats});
    if (centred) run.out({stats});
    if (forward_op == Op::BatchNorm) run.in_place_out().in_place_out();
    return run.run_reference();
  };
  const KernelRun kept = forward(x, gamma, beta);
  KernelRun backward(backward_op, attrs);
  backward.in(shape, dy).in(shape, x).in({channels}, gamma).in({stats}, kept.result(1));
  if (centred) backward.in({stats}, kept.result(2));
  backward.in({channels}, zeros);
  if (centred) backward.in({channels}, zeros);
  backward.out(shape).in_place_out();
  if (centred) backward.in_place_out();
  backward.run_reference();
  expect_near(backward.result(0),
              numeric_gradient([&](const Values& v) { return forward(v, gamma, beta).result(0); }, x, dy),
              kTolerance);
  expect_near(backward.result(1),
              numeric_gradient([&](const Values& v) { return forward(x, v, beta).result(0); }, gamma, dy),
              kTolerance);
  if (!centred) return;
  expect_near(backward.result(2),
              numeric_gradient([&](const Values& v) { return forward(x, gamma, v).result(0); }, beta, dy),
              kTolerance);
}

TEST(RefGradient, OfNormalisationsMatchesDifferences) {
  check_norm(Op::LayerNorm, Op::LayerNormGrad, {3, 5}, 3, {{"eps", 1e-3}});
  check_norm(Op::RmsNorm, Op::RmsNormGrad, {3, 5}, 3, {{"eps", 1e-3}});
  check_norm(Op::BatchNorm, Op::BatchNormGrad, {2, 2, 3, 3}, 3, {{"eps", 1e-3}, {"momentum", 0.1}});
  check_norm(Op::GroupNorm, Op::GroupNormGrad, {2, 2, 2, 6}, 6, {{"eps", 1e-3}, {"groups", 3}});
}

TEST(RefGradient, OfConvolutionMatchesDifferences) {
  const Attrs attrs = {{"stride", 2}, {"pad", 1}};
  const Shape xs = {2, 4, 5, 3}, ws = {2, 3, 3, 3}, ys = {2, 2, 3, 2};
  const Values x = random_values(xs.elems(), 1), w = random_values(ws.elems(), 2),
               dy = random_values(ys.elems(), 3);
  const auto forward = [&](const Values& x, const Values& w) {
    return KernelRun(Op::Conv2d, attrs).in(xs, x).in(ws, w).out(ys).run_reference().result(0);
  };
  KernelRun dx(Op::Conv2dGradInput, {{"stride", 2}, {"pad", 1}, {"height", 4}, {"width", 5}});
  dx.in(ys, dy).in(ws, w).out(xs).run_reference();
  expect_near(dx.result(0), numeric_gradient([&](const Values& v) { return forward(v, w); }, x, dy),
              kTolerance);
  KernelRun dw(Op::Conv2dGradWeight, attrs);
  dw.in(ws, Values(w.size(), 0.0)).in(xs, x).in(ys, dy).in_place_out().run_reference();
  expect_near(dw.result(0), numeric_gradient([&](const Values& v) { return forward(x, v); }, w, dy),
              kTolerance);
}

TEST(RefGradient, OfAttentionMatchesDifferences) {
  for (int64_t causal : {0, 1}) {
    const Attrs attrs = {{"heads", 4}, {"kv_heads", 2}, {"causal", causal}};
    const Shape qkv_shape = {2, 3, 16}, out_shape = {2, 3, 8}, lse_shape = {2, 4, 3};
    const Values qkv = random_values(qkv_shape.elems(), 1), dout = random_values(out_shape.elems(), 2);
    const auto forward = [&](const Values& qkv) {
      return KernelRun(Op::Attention, attrs).in(qkv_shape, qkv).out(out_shape).out(lse_shape).run_reference();
    };
    const KernelRun kept = forward(qkv);
    KernelRun backward(Op::AttentionGrad, attrs);
    backward.in(out_shape, dout)
        .in(qkv_shape, qkv)
        .in(out_shape, kept.result(0))
        .in(lse_shape, kept.result(1));
    expect_near(backward.out(qkv_shape).run_reference().result(0),
                numeric_gradient([&](const Values& v) { return forward(v).result(0); }, qkv, dout),
                kTolerance);
  }
}

TEST(RefGradient, OfActivationsMatchesDifferences) {
  const Values x = random_values(24, 1), dy = random_values(24, 2), dy_half = random_values(12, 3);
  const auto forward = [](Op op, const Shape& to) {
    return [=](const Values& v) { return KernelRun(op).in({4, 6}, v).out(to).run_reference().result(0); };
  };
  KernelRun gelu(Op::GeluGrad);
  gelu.in({4, 6}, dy).in({4, 6}, x).out({4, 6}).run_reference();
  expect_near(gelu.result(0), numeric_gradient(forward(Op::Gelu, {4, 6}), x, dy), kTolerance);
  KernelRun relu(Op::ReluGrad);
  relu.in({4, 6}, dy).in({4, 6}, forward(Op::Relu, {4, 6})(x)).out({4, 6}).run_reference();
  expect_near(relu.result(0), numeric_gradient(forward(Op::Relu, {4, 6}), x, dy), kTolerance);
  KernelRun swiglu(Op::SwigluGrad);
  swiglu.in({4, 3}, dy_half).in({4, 6}, x).out({4, 6}).run_reference();
  expect_near(swiglu.result(0), numeric_gradient(forward(Op::Swiglu, {4, 3}), x, dy_half), kTolerance);
}

TEST(RefGradient, OfPoolingMatchesDifferences) {
  const Shape xs = {2, 5, 5, 2}, ys = {2, 3, 3, 2};
  const Attrs sizes = {{"height", 5}, {"width", 5}};
  const Values x = random_values(xs.elems(), 1), dy = random_values(ys.elems(), 2),
               dmean = random_values(4, 3);
  const auto max_pool = [&](const Values& v) {
    KernelRun run(Op::MaxPool2d, {{"size", 3}, {"stride", 2}, {"pad", 1}});
    return run.in(xs, v).out(ys).out(DType::I32, ys).run_reference();
  };
  KernelRun max_grad(Op::MaxPool2dGrad, sizes);
  max_grad.in(ys, dy).in(DType::I32, ys, max_pool(x).result(1)).out(xs).run_reference();
  expect_near(max_grad.result(0),
              numeric_gradient([&](const Values& v) { return max_pool(v).result(0); }, x, dy), kTolerance);
  const auto mean = [&](const Values& v) {
    return KernelRun(Op::GlobalAvgPool).in(xs, v).out({2, 2}).run_reference().result(0);
  };
  KernelRun mean_grad(Op::GlobalAvgPoolGrad, sizes);
  mean_grad.in({2, 2}, dmean).out(xs).run_reference();
  expect_near(mean_grad.result(0), numeric_gradient(mean, x, dmean), kTolerance);
}

TEST(RefGradient, OfTheLossMatchesDifferences) {
  const Values targets = {1, -1, 4, 0}, weights = {0.5, 0};  // the loss times the scale, and not the count
  const Values x = random_values(12, 1), w = random_values(15, 2), logits = random_values(20, 3);
  const auto loss = [&](const Values& v) {
    return KernelRun(Op::CrossEntropy)
        .in({4, 5}, v)
        .in(DType::I32, {4}, targets)
        .out({2})
        .run_reference()
        .result(0);
  };
  KernelRun grad(Op::CrossEntropyGrad);
  grad.in({4, 5}, logits).in(DType::I32, {4}, targets).in({1}, {0.5}).in_place_out().out({2}).run_reference();
  expect_near(grad.result(0), numeric_gradient(loss, logits, weights), kTolerance);
  EXPECT_EQ(grad.result(1), loss(logits));

  const auto linear_loss = [&](const Values& x, const Values& w) {
    KernelRun run(Op::LinearCrossEntropy, {{"chunk", 2}});
    return run.in({4, 3}, x).in({5, 3}, w).in(DType::I32, {4}, targets).out({2}).run_reference().result(0);
  };
  KernelRun linear(Op::LinearCrossEntropyGrad, {{"chunk", 2}});
  linear.in({4, 3}, x).in({5, 3}, w).in(DType::I32, {4}, targets).in({1}, {0.5}).in({5, 3}, Values(15, 0.0));
  linear.out({4, 3}).out({2}).in_place_out().run_reference();
  expect_near(linear.result(0),
              numeric_gradient([&](const Values& v) { return linear_loss(v, w); }, x, weights), kTolerance);
  expect_near(linear.result(2),
              numeric_gradient([&](const Values& v) { return linear_loss(x, v); }, w, weights), kTolerance);
}

// Two ranks: a norm of [2, 3, 1, 2] whose first and second half of rows lie apart.
TEST(RefGradient, OfBatchNormOverRanksMatchesDifferences) {
  constexpr int64_t kRanks = 2, kChannels = 2;
  const Shape all = {2, 3, 1, kChannels}, local = {1, 3, 1, kChannels}, c = {kChannels},
              pair = {2, kChannels};
  const auto half = [&](const Values& v, int64_t rank) {
    return Values(v.begin() + rank * local.elems(), v.begin() + (rank + 1) * local.elems());
  };
  const auto append = [](Values& to, const Values& from) { to.insert(to.end(), from.begin(), from.end()); };
  const Values x = random_values(all.elems(), 1), dy = random_values(all.elems(), 2);
  const Values gamma = random_values(kChannels, 3), beta = random_values(kChannels, 4), zeros(kChannels, 0.0);
  Values mean, rstd;
  const auto forward = [&](const Values& x, const Values& gamma) {
    Values parts, y;
    for (int64_t rank = 0; rank < kRanks; ++rank) {
      append(parts,
             KernelRun(Op::BatchNormStats).in(local, half(x, rank)).out(pair).run_reference().result(0));
    }
    for (int64_t rank = 0; rank < kRanks; ++rank) {
      KernelRun run(Op::BatchNormApply, {{"eps", 0.1}, {"momentum", 0.1}, {"size", kRanks}});
      run.in(local, half(x, rank)).in(c, gamma).in(c, beta).in(c, zeros).in(c, zeros);
      run.in({2 * kRanks, kChannels}, parts).out(local).out(c).out(c).in_place_out().in_place_out();
      append(y, run.run_reference().result(0));
      mean = run.result(1);
      rstd = run.result(2);
    }
    return y;
  };
  const Values expected_dx = numeric_gradient([&](const Values& v) { return forward(v, gamma); }, x, dy);
  const Values expected_dgamma = numeric_gradient([&](const Values& v) { return forward(x, v); }, gamma, dy);
  forward(x, gamma);
  Values sums(2 * kChannels, 0.0), dgamma = zeros, dx;
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    KernelRun run(Op::BatchNormGradStats);
    run.in(local, half(dy, rank)).in(local, half(x, rank)).in(c, mean).in(c, rstd).in(c, dgamma).in(c, zeros);
    run.out(pair).in_place_out().in_place_out().run_reference();
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += run.result(0)[i];
    dgamma = run.result(1);
  }
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    KernelRun run(Op::BatchNormGradApply, {{"size", kRanks}});
    run.in(local, half(dy, rank)).in(local, half(x, rank)).in(c, gamma).in(c, mean).in(c, rstd);
    append(dx, run.in(pair, sums).out(local).run_reference().result(0));
  }
  expect_near(dx, expected_dx, kTolerance);
  expect_near(dgamma, expected_dgamma, kTolerance);
}

// Two ranks with three of six columns each.
TEST(RefGradient, OfTheLossOverRanksMatchesDifferences) {
  constexpr int64_t kRanks = 2, kRows = 4, kColumns = 3;
  const Values targets = {1, -1, 4, 0}, weights = {0.5, 0};
  const std::vector<Values> logits = {random_values(kRows * kColumns, 1), random_values(kRows * kColumns, 2)};
  const auto parts = [&](const std::vector<Values>& logits) {
    Values parts;
    for (int64_t rank = 0; rank < kRanks; ++rank) {
      KernelRun run(Op::VocabParts, {{"first", rank * kColumns}});
      run.in({kRows, kColumns}, logits[static_cast<size_t>(rank)]).in(DType::I32, {kRows}, targets);
      const Values part = run.out({kRows, 4}).run_reference().result(0);
      parts.insert(parts.end(), part.begin(), part.end());
    }
    return parts;
  };
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    const auto loss = [&](const Values& v) {
      std::vector<Values> changed = logits;
      changed[static_cast<size_t>(rank)] = v;
      KernelRun run(Op::VocabLoss, {{"size", kRanks}});
      run.in({kRanks * kRows, 4}, parts(changed)).in(DType::I32, {kRows}, targets).out({2});
      return run.run_reference().result(0);
    };
    const Values& mine = logits[static_cast<size_t>(rank)];
    KernelRun grad(Op::VocabLossGrad, {{"first", rank * kColumns}, {"size", kRanks}});
    grad.in({kRows, kColumns}, mine).in(DType::I32, {kRows}, targets).in({kRanks * kRows, 4}, parts(logits));
    grad.in({1}, {0.5}).in_place_out().out({2}).run_reference();
    expect_near(grad.result(0), numeric_gradient(loss, mine, weights), kTolerance);
    EXPECT_EQ(grad.result(1), loss(mine));
  }
}

}  // namespace
}  // namespace tandem::cpu
