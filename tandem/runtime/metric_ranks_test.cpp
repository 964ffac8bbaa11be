// A model's own metrics, summed over the ranks that make them.
#include <gtest/gtest.h>

#include <mutex>

#include "tandem/kernels/cpu/register.h"
#include "tandem/runtime/rank_sessions_test.h"

namespace tandem {
namespace {

Graph measured_model() {
  const ModelConfig c = tiny_gpt2(2);
  Builder b = Builder::for_tokens(2, c.context);
  Value x = b.embedding(c.vocab, c.width, true);
  for (int layer = 0; layer < 2; ++layer) {
    const auto block = b.block(layer);
    const Value qkv = b.linear(b.layer_norm(x, "norm"), 3 * c.width, "qkv", {.dims = "heads,width"});
    x = b.add(x, b.linear(b.attention(qkv, c.heads, c.heads), c.width, "out", {.dims = "width,heads"}));
    b.metric("stream/" + std::to_string(layer), x, true);
  }
  b.cross_entropy(
      b.linear(b.layer_norm(x, "final_norm"), c.vocab, "head", {.bias = false, .dims = "vocab,width"}));
  return b.take();
}

// The two sums of the second step, which every rank must have.
std::vector<double> metrics(const MeshShape& shape, const std::function<void(CompileOptions&)>& adjust = {}) {
  std::vector<double> all;
  std::mutex mutex;
  const auto read = [&](Session& session) {
    const std::span<const std::byte> sums = session.read(session.step().update, "sums");
    std::vector<double> last(2);
    std::memcpy(last.data(), sums.data() + sums.size() - 2 * sizeof(double), 2 * sizeof(double));
    const std::lock_guard lock(mutex);
    if (all.empty()) all = last;
    EXPECT_EQ(all, last);
  };
  const auto options = [&](CompileOptions& made) {
    if (adjust) adjust(made);
  };
  train_ranks(shape, Strategy::Single, cpu::all_kernels(), options, measured_model(), read);
  return all;
}

TEST(MetricRanks, AreTheSameOnAPipelineAndWithRecomputation) {
  const auto twice = [](CompileOptions& options) { options.parallel.micro_batches = 2; };
  const std::vector<double> one = metrics({}, twice);
  EXPECT_GT(one[0], 0);
  EXPECT_GT(one[1], one[0]);
  EXPECT_EQ(metrics({.pipeline = 2}, twice), one);
  EXPECT_EQ(metrics({},
                    [&](CompileOptions& options) {
                      twice(options);
                      options.recompute = {RecomputeKind::Full, 0};
                    }),
            one);
}

TEST(MetricRanks, EveryRankOfTheTensorAxisAddsAMean) {
  const std::vector<double> one = metrics({}), two = metrics({.tensor = 2});
  for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(two[i] / 2 / one[i], 1, 1e-5);
}

}  // namespace
}  // namespace tandem
