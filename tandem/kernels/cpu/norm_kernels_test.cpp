#include "tandem/kernels/cpu/pointwise_test.h"

namespace tandem::cpu {
namespace {

const Attrs kEps{{"eps", 1e-5}};

// What a norm reads, for both kinds: a residual pair with a mean away from zero, and gradients.
struct NormData {
  NormData(DType storage_type, int64_t num_rows, int64_t row_width)
      : storage(storage_type),
        rows(num_rows),
        a(random_tensor(storage, {rows, row_width}, 1, 1.5, 0.5)),
        b(random_tensor(storage, {rows, row_width}, 2)),
        gamma(random_tensor(storage, {row_width}, 3, 0.2, 1)),
        beta(random_tensor(storage, {row_width}, 4)),
        dy(random_tensor(storage, {rows, row_width}, 5)),
        dres(random_tensor(storage, {rows, row_width}, 6)),
        acc_dgamma(random_tensor(DType::F32, {row_width}, 7)),
        acc_dbeta(random_tensor(DType::F32, {row_width}, 8)) {}

  TensorType row_type() const { return a.type; }
  TensorType stat_type() const { return {DType::F32, {rows}}; }

  Call layer_norm(const HostTensor& x) const {
    return {Op::LayerNorm, {x, gamma, beta}, {row_type(), stat_type(), stat_type()}, {-1, -1, -1}, kEps};
  }
  Call add_layer_norm() const {
    return {Op::AddLayerNorm,
            {a, b, gamma, beta},
            {row_type(), row_type(), stat_type(), stat_type()},
            {-1, -1, -1, -1},
            kEps};
  }
  Call rms_norm(const HostTensor& x) const {
    return {Op::RmsNorm, {x, gamma}, {row_type(), stat_type()}, {-1, -1}, kEps};
  }
  Call add_rms_norm() const {
    return {Op::AddRmsNorm, {a, b, gamma}, {row_type(), row_type(), stat_type()}, {-1, -1, -1}, kEps};
  }
  Call add(const HostTensor& x, const HostTensor& y) const {
    return {Op::Add, {x, y}, {row_type()}, {-1}, {}};
  }

  Call layer_norm_grad(bool with_dres, int dx_shares = -1) const {
    const auto forward = run_fast(layer_norm(a));
    Call call{Op::LayerNormGrad,
              {dy, a, gamma, forward[1], forward[2], acc_dgamma, acc_dbeta},
              {row_type(), acc_dgamma.type, acc_dbeta.type},
              {dx_shares, 5, 6},
              {}};
    if (with_dres) call.in.push_back(dres);
    return call;
  }
  Call rms_norm_grad(bool with_dres, int dx_shares = -1) const {
    const auto forward = run_fast(rms_norm(a));
    Call call{Op::RmsNormGrad,
              {dy, a, gamma, forward[1], acc_dgamma},
              {row_type(), acc_dgamma.type},
              {dx_shares, 4},
              {}};
    if (with_dres) call.in.push_back(dres);
    return call;
  }

  DType storage;
  int64_t rows;
  HostTensor a, b, gamma, beta, dy, dres, acc_dgamma, acc_dbeta;
};

// A row of one element has no spread: rstd is 1 / sqrt(eps), which magnifies every rounding.
double slack_of(const NormData& data) {
  const double ulp = is_half(data.storage) ? relative_tolerance(data.storage) : 0;
  return (data.a.type.shape.last() == 1 ? 5e-3 : 2e-5) + ulp;
}

TEST(Norms, MatchReferenceOverRaggedShapes) {
  for_ragged_shapes([](DType storage, int64_t rows, int64_t width) {
    const NormData data(storage, rows, width);
    const double slack = slack_of(data);
    expect_matches_reference(data.layer_norm(data.a), slack);
    expect_matches_reference(data.add_layer_norm(), slack);
    expect_matches_reference(data.rms_norm(data.a), slack);
    expect_matches_reference(data.add_rms_norm(), slack);
  });
}

TEST(NormGrads, MatchReferenceOverRaggedShapes) {
  for_ragged_shapes([](DType storage, int64_t rows, int64_t width) {
    const NormData data(storage, rows, width);
    for (const bool with_dres : {false, true}) {
      expect_matches_reference(data.layer_norm_grad(with_dres), 2 * slack_of(data));
      expect_matches_reference(data.rms_norm_grad(with_dres), 2 * slack_of(data));
    }
  });
}

TEST(NormGrads, MatchReferenceWithManyRowsAndUnevenChunks) {
  const NormData data(DType::F32, 2500, 24);
  expect_matches_reference(data.layer_norm_grad(true), 2e-4);
  expect_matches_reference(data.rms_norm_grad(true), 2e-4);
}

TEST(NormGrads, AddToAccumulatorsOfTheStorageType) {
  for (const DType storage : {DType::BF16, DType::F16}) {
    NormData data(storage, 100, 31);
    data.acc_dgamma = random_tensor(storage, {31}, 7);
    data.acc_dbeta = random_tensor(storage, {31}, 8);
    expect_matches_reference(data.layer_norm_grad(false), 2 * slack_of(data));
  }
}

TEST(NormGrads, GiveTheSameBitsInPlace) {
  for_ragged_shapes([](DType storage, int64_t rows, int64_t width) {
    const NormData data(storage, rows, width);
    for (const bool with_dres : {false, true}) {
      EXPECT_EQ(run_fast(data.layer_norm_grad(with_dres, 0)), run_fast(data.layer_norm_grad(with_dres)));
      EXPECT_EQ(run_fast(data.rms_norm_grad(with_dres, 0)), run_fast(data.rms_norm_grad(with_dres)));
    }
  });
}

TEST(FusedNorms, GiveTheBitsOfAddThenNorm) {
  for_each_target([] {
    for_ragged_shapes([](DType storage, int64_t rows, int64_t width) {
      const NormData data(storage, rows, width);
      const auto sum = run_fast(data.add(data.a, data.b));

      const auto layer = run_fast(data.layer_norm(sum[0])), fused_layer = run_fast(data.add_layer_norm());
      EXPECT_EQ(fused_layer[0], sum[0]);
      for (size_t k = 0; k < 3; ++k) EXPECT_EQ(fused_layer[k + 1], layer[k]);

      const auto rms = run_fast(data.rms_norm(sum[0])), fused_rms = run_fast(data.add_rms_norm());
      EXPECT_EQ(fused_rms[0], sum[0]);
      for (size_t k = 0; k < 2; ++k) EXPECT_EQ(fused_rms[k + 1], rms[k]);
    });
  });
}

TEST(FusedNormGrads, GiveTheBitsOfGradThenAdd) {
  for_each_target([] {
    for_ragged_shapes([](DType storage, int64_t rows, int64_t width) {
      const NormData data(storage, rows, width);
      auto layer = run_fast(data.layer_norm_grad(false));
      layer[0] = run_fast(data.add(layer[0], data.dres))[0];
      EXPECT_EQ(run_fast(data.layer_norm_grad(true)), layer);

      auto rms = run_fast(data.rms_norm_grad(false));
      rms[0] = run_fast(data.add(rms[0], data.dres))[0];
      EXPECT_EQ(run_fast(data.rms_norm_grad(true)), rms);
    });
  });
}

}  // namespace
}  // namespace tandem::cpu
