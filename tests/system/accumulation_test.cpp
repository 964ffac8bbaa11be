// A global batch of 32 as 1 x 32, 4 x 8 and 32 x 1: the gradient that the optimizer gets is the same, also
// where targets are unevenly spread over the passes. Real loader, real step; only the samples are made up.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "tandem/base/rng.h"
#include "tandem/compile/passes/differentiate.h"
#include "tandem/config/load.h"
#include "tandem/kernels/cpu/backend.h"
#include "tandem/runtime/session.h"
#include "tandem/train/compile_config.h"
#include "tandem/train/run_data.h"
#include "tandem/train/step_runner.h"

namespace tandem {
namespace {

uint64_t noise(int64_t index, int64_t place) {
  return mix_bits(static_cast<uint64_t>(index) * 0x9e3779b97f4a7c15ull + static_cast<uint64_t>(place));
}

// Sample i has targets up to a length of its own, with holes; every seventh has none at all.
class RaggedSamples final : public Dataset {
 public:
  explicit RaggedSamples(const SampleSpec& spec) : spec_(spec) {}

  SampleSpec spec() const override { return spec_; }
  int64_t num_samples() const override { return 50; }

  int64_t num_valid_targets(int64_t index) const override {
    int64_t count = 0;
    for (int64_t t = 0; t < spec_.num_targets(); ++t) count += counts(index, t) ? 1 : 0;
    return count;
  }

  void fill(int64_t index, const SampleBuffers& out) const override {
    const auto classes = static_cast<uint64_t>(spec_.num_classes);
    for (int64_t i = 0; i < spec_.input_elems(); ++i) {
      const uint64_t bits = noise(index, i);
      if (out.tokens != nullptr) out.tokens[i] = static_cast<int32_t>(bits % classes);
      if (out.image != nullptr) out.image[i] = static_cast<float>(bits >> 40) * 0x1p-23f - 1.0f;
    }
    for (int64_t t = 0; t < spec_.num_targets(); ++t) {
      out.targets[t] = counts(index, t) ? static_cast<int32_t>(noise(index, ~t) % classes) : kNoTarget;
    }
  }

 private:
  bool counts(int64_t index, int64_t target) const {
    if (index % 7 == 0) return false;
    const auto length =
        static_cast<int64_t>(noise(index, 1 << 20) % static_cast<uint64_t>(spec_.num_targets())) + 1;
    return target < length && (spec_.num_targets() == 1 || noise(index, target) % 5 != 0);
  }

  SampleSpec spec_;
};

struct Step {
  double loss = 0;
  std::vector<float> gradient;            // of every parameter, one after another
  std::set<int64_t> targets_of_a_sample;  // numbers of targets that occur
};

Step run_step(std::string_view model, int64_t micro_batch) {
  const Config config =
      parse_config(
          fmt::format("model: {}\ntrain: {{batch: 32, micro_batch: {}}}\nthreads: 2\n", model, micro_batch),
          "config")
          .config;
  const Backend backend = cpu::make_backend();
  ThreadPool pool(thread_count(config));
  const RaggedSamples samples(sample_spec(config));
  Session session(compile_config(config, compile_options(config, backend)), backend, pool);
  session.initialize(7);
  Loader loader(samples, train_loader_options(config), session.host());
  StepRunner runner(config, session, loader);

  Step step;
  const Command* first_of_update = session.step().update.commands.data();
  session.observe([&](const Command& command, size_t, double, double) {
    if (&command != first_of_update) return;  // it takes the norm: the gradients are whole, and still there
    std::map<std::string, std::vector<float>> gradients;
    for (const Persistent& item : session.step().persistents) {
      if (item.slice.arena != Arena::Gradients) continue;
      const auto bytes = session.buffer(item);
      const auto* values = reinterpret_cast<const float*>(bytes.data());
      const size_t elems = bytes.size() / sizeof(float);
      // A tied table's gradient from the embedding may be gathered apart: it belongs to the table's.
      const size_t begin = item.name.find(':') + 1,
                   end = std::min(item.name.rfind(kEmbeddingPart), item.name.size());
      std::vector<float>& gradient = gradients[item.name.substr(begin, end - begin)];
      gradient.resize(elems);
      for (size_t i = 0; i < elems; ++i) gradient[i] += values[i];
    }
    for (const auto& [name, gradient] : gradients)
      step.gradient.insert(step.gradient.end(), gradient.begin(), gradient.end());
  });
  step.loss = runner.run(1).loss;
  for (int64_t i = 0; i < samples.num_samples(); ++i)
    step.targets_of_a_sample.insert(samples.num_valid_targets(i));
  return step;
}

double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    norm += std::pow(static_cast<double>(a[i]), 2);
  }
  return std::sqrt(difference / norm);
}

void expect_same_gradient(std::string_view model) {
  const Step whole = run_step(model, 32);
  ASSERT_FALSE(whole.gradient.empty());
  ASSERT_GT(whole.targets_of_a_sample.size(), 1u) << "targets are not ragged: nothing is tested";
  for (int64_t micro_batch : {8, 1}) {
    const Step parts = run_step(model, micro_batch);
    ASSERT_EQ(parts.gradient.size(), whole.gradient.size());
    EXPECT_LE(relative_difference(whole.gradient, parts.gradient), 1e-6) << 32 / micro_batch << " passes";
    EXPECT_NEAR(parts.loss, whole.loss, 1e-6 * whole.loss) << 32 / micro_batch << " passes";
  }
}

TEST(Accumulation, GivesTheGradientOfTheWholeBatchForGpt2) {
  expect_same_gradient("{family: gpt2, layers: 3, width: 48, heads: 3, context: 40, vocab: 256}");
}

TEST(Accumulation, GivesTheGradientOfTheWholeBatchForLlama) {
  expect_same_gradient(
      "{family: llama, layers: 3, width: 48, heads: 6, kv_heads: 2, context: 40, vocab: 256}");
}

TEST(Accumulation, GivesTheGradientOfTheWholeBatchForMlp) {
  expect_same_gradient("{family: mlp, layers: 3, width: 72, image_size: 16}");
}

TEST(Accumulation, GivesTheGradientOfTheWholeBatchForResnetWithGroupNorm) {
  expect_same_gradient("{family: resnet, blocks: [1, 1], width: 8, image_size: 16, norm: group, groups: 4}");
}

}  // namespace
}  // namespace tandem
