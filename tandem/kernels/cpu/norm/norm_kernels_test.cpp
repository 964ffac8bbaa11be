#include "tandem/kernels/cpu/norm/norm_data_test.h"

namespace tandem::cpu {
namespace {

TEST(Norms, MatchReferenceOverRaggedShapes) {
  for_ragged_shapes([](DType storage, int64_t rows, int64_t width) {
    const NormData data(storage, rows, width);
    const double slack = slack_of(data);
    expect_matches_reference(data.layer_norm(data.a), slack);
    expect_matches_reference(data.add_layer_norm(), slack);
    expect_matches_reference(data.rms_norm(data.a), slack);
    expect_matches_reference(data.add_rms_norm(), slack);
    expect_matches_reference(with_plus_one(data.rms_norm(data.a)), 2 * slack);
    expect_matches_reference(with_plus_one(data.add_rms_norm()), 2 * slack);
  });
}

TEST(NormGrads, MatchReferenceOverRaggedShapes) {
  for_ragged_shapes([](DType storage, int64_t rows, int64_t width) {
    const NormData data(storage, rows, width);
    for (const bool with_dres : {false, true}) {
      expect_matches_reference(data.layer_norm_grad(with_dres), 2 * slack_of(data));
      expect_matches_reference(data.rms_norm_grad(with_dres), 2 * slack_of(data));
      expect_matches_reference(with_plus_one(data.rms_norm_grad(with_dres)), 3 * slack_of(data));
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

TEST(RefNormGrads, GiveTheNormsOutputAgain) {
  for (const DType storage : kStorage) {
    const NormData data(storage, 9, 31);
    for (const bool with_dres : {false, true}) {
      for (const Call& call : {data.layer_norm_grad(with_dres), data.rms_norm_grad(with_dres)}) {
        const bool layer = call.op == Op::LayerNormGrad;
        auto again = run_reference(with_again(call, data));
        EXPECT_EQ(again.back(), run_reference(layer ? data.layer_norm(data.a) : data.rms_norm(data.a))[0]);
        again.pop_back();
        EXPECT_EQ(again, run_reference(call));
      }
      const Call plus_one = with_plus_one(data.rms_norm_grad(with_dres));
      EXPECT_EQ(run_reference(with_again(plus_one, data)).back(),
                run_reference(with_plus_one(data.rms_norm(data.a)))[0]);
    }
  }
}

}  // namespace
}  // namespace tandem::cpu
