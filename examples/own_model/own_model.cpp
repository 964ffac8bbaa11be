// A small language model that is in no library: parallel attention and feed-forward halves (as in GPT-J),
// RMSNorm, and one norm a block. Everything else (gradients, precision, recomputation, the memory plan,
// checkpoints, resuming, metrics) comes with it:
//
//   own_model examples/own_model/config.yaml
#include <chrono>
#include <cstdio>

#include "tandem/config/load.h"
#include "tandem/kernels/cpu/backend.h"
#include "tandem/train/trainer.h"

static void parallel_gpt(tandem::Builder& b, const tandem::ModelConfig& c) {
  tandem::Value x = b.embedding(c.vocab, c.width, /*positions=*/true);
  for (int layer = 0; layer < c.layers; ++layer) {
    const auto block = b.block(layer);
    const tandem::Value h = b.rms_norm(x, "norm");
    const tandem::Value attended = b.attention(b.linear(h, 3 * c.width, "qkv"), c.heads, c.heads);
    const tandem::Value mixed = b.linear(attended, c.width, "out");
    const tandem::Value fed = b.linear(b.gelu(b.linear(h, c.ffn_width(), "up")), c.width, "down");
    x = b.add(b.add(x, mixed), fed);
  }
  b.cross_entropy(b.linear(b.rms_norm(x, "norm"), c.vocab, "head", {.bias = false}));
}

int main(int argc, char** argv) try {
  const tandem::Config config = tandem::load_config(argc > 1 ? argv[1] : "config.yaml").config;
  tandem::TrainOptions options;
  options.run_dir = "runs/" + config.name;
  options.model = tandem::own_model(parallel_gpt);
  options.start_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  return static_cast<int>(tandem::train(config, tandem::cpu::make_backend(), options));
} catch (const tandem::Error& error) {
  std::fprintf(stderr, "own_model: error: %s\n", error.what());
  return static_cast<int>(error.exit_code());
} catch (const std::exception& error) {
  std::fprintf(stderr, "own_model: %s\n", error.what());
  return 1;
}
