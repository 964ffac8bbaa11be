// What the yardstick workloads of a GPU take, with and without what saves memory. Their plans are exact, so
// they need no GPU.
#include <gtest/gtest.h>

#include "tandem/compile/commands_test.h"
#include "tandem/compile/compile_step.h"
#include "tandem/models/model.h"

namespace tandem {
namespace {

constexpr double kGib = 1 << 30;

struct Saving {
  bool overwrite_gradients = false;
  bool outputs_again = false;
  bool gelu_again = false;
};

// GiB of gradients and activations, 16-bit gradients in blocks; fused as on a GPU.
double planned(const ModelConfig& model, int64_t batch, const Saving& saving) {
  CompileOptions options;
  options.precision = {.storage = DType::BF16, .block_gradients = DType::BF16};
  options.fuse = {.chunk_logits_above = 256 << 20,
                  .chunk_bytes = 1 << 30,
                  .even_chunks = true,
                  .gelu_of_product = true,
                  .gelu_again = saving.gelu_again,
                  .gelu_grad = true,
                  .bias_sums = true,
                  .attention_sums = [](const TensorType&, const Attrs&) { return true; },
                  .outputs_again = saving.outputs_again};
  if (saving.outputs_again) options.recompute = {RecomputeKind::Selective, 0};
  options.overwrite_gradients = saving.overwrite_gradients;
  options.choose = choose_by_name;
  const CompiledStep step = compile_step(build_model(model, batch), options);
  EXPECT_EQ(step.sizes[static_cast<size_t>(Arena::Gradients)] == 0, saving.overwrite_gradients);
  EXPECT_EQ(gradients_in_activations(step) > 0, saving.overwrite_gradients);
  return static_cast<double>(step.sizes[static_cast<size_t>(Arena::Gradients)] +
                             step.sizes[static_cast<size_t>(Arena::Activations)]) /
         kGib;
}

ModelConfig gpt2(int64_t layers, int64_t width, int64_t heads) {
  ModelConfig config;
  config.family = Family::Gpt2;
  config.layers = layers;
  config.width = width;
  config.heads = heads;
  config.context = 1024;
  config.vocab = 50304;
  return config;
}

TEST(PlanSizes, OfGpt2With124MillionParameters) {
  const ModelConfig model = gpt2(12, 768, 12);
  EXPECT_NEAR(planned(model, 32, {}), 9.47, 0.01);
  EXPECT_NEAR(planned(model, 32, {.overwrite_gradients = true}), 9.31, 0.01);
  EXPECT_NEAR(planned(model, 32, {.overwrite_gradients = true, .outputs_again = true}), 8.18, 0.01);
  EXPECT_NEAR(planned(model, 32, {true, true, true}), 6.03, 0.01);
}

TEST(PlanSizes, OfGpt2With1500MillionParameters) {
  const ModelConfig model = gpt2(48, 1600, 25);
  EXPECT_NEAR(planned(model, 8, {}), 21.92, 0.01);
  EXPECT_NEAR(planned(model, 8, {.overwrite_gradients = true}), 19.17, 0.01);
  EXPECT_NEAR(planned(model, 8, {.overwrite_gradients = true, .outputs_again = true}), 16.82, 0.01);
  EXPECT_NEAR(planned(model, 8, {true, true, true}), 12.20, 0.01);
}

TEST(PlanSizes, OfLlamaWith1200MillionParameters) {
  ModelConfig model = gpt2(16, 2048, 32);
  model.family = Family::Llama;
  model.kv_heads = 8;
  model.ffn = 8192;
  model.context = 4096;
  model.vocab = 128256;
  model.qkv_bias = false;
  EXPECT_NEAR(planned(model, 4, {}), 21.51, 0.01);
  EXPECT_NEAR(planned(model, 4, {.overwrite_gradients = true}), 19.70, 0.01);
  EXPECT_NEAR(planned(model, 4, {.overwrite_gradients = true, .outputs_again = true}), 13.86, 0.01);
}

}  // namespace
}  // namespace tandem
