// Weights and their moving averages in each other's place, on ranks that hold parts of them.
#include <gtest/gtest.h>

#include "tandem/kernels/cpu/register.h"
#include "tandem/runtime/rank_sessions_test.h"

namespace tandem {
namespace {

Weights train(const MeshShape& shape, Strategy strategy, Precision precision, int exchanges, bool offload) {
  const auto options = [&](CompileOptions& made) {
    made.ema = 0.5;
    made.shows_ema = true;
    made.precision = precision_policy(precision);
    made.parallel.offload_optimizer = offload;
  };
  const auto exchange = [&](Session& session) {
    for (int i = 0; i < exchanges; ++i) session.exchange_weights();
  };
  return train_ranks(shape, strategy, cpu::all_kernels(), options, build_model(tiny_gpt2(2), 2), exchange)
      .weights;
}

TEST(ExchangeRanks, AveragesTakeTheWeightsPlacesAndGiveEveryBitBack) {
  for (Precision precision : {Precision::Fp32, Precision::Bf16, Precision::Fp16}) {
    for (const auto& [shape, strategy, offload] : {std::tuple(MeshShape{}, Strategy::Single, false),
                                                   {{.data = 3}, Strategy::Ddp, false},
                                                   {{.data = 3}, Strategy::Zero1, false},
                                                   {{.data = 2}, Strategy::Fsdp, false},
                                                   {{.data = 2}, Strategy::Zero2, true},
                                                   {{.pipeline = 2}, Strategy::Single, false},
                                                   {{.tensor = 2}, Strategy::Single, false}}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(precision) << " " << static_cast<int>(strategy));
      const Weights plain = train(shape, strategy, precision, 0, offload);
      const Weights once = train(shape, strategy, precision, 1, offload);
      EXPECT_EQ(train(shape, strategy, precision, 2, offload), plain);
      EXPECT_EQ(once.at("blocks.0.qkv.weight"), plain.at("ema:blocks.0.qkv.weight"));
      EXPECT_EQ(once.at("ema:blocks.0.qkv.weight"), plain.at("blocks.0.qkv.weight"));
      EXPECT_NE(once.at("blocks.0.qkv.weight"), plain.at("blocks.0.qkv.weight"));
    }
  }
}

}  // namespace
}  // namespace tandem
