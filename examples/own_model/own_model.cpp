// A small language model that is in no library: parallel attention and feed-forward halves (as in GPT-J),
// RMSNorm, and one norm a block. Everything else comes with it: gradients, precision, recomputation, the
// memory plan, ranks, checkpoints, resuming, metrics, and the commands of `tandem`:
//
//   own_model train examples/own_model/config.yaml
//   own_model --help
#include <string>

#include "tandem/cli/command_line.h"

static void parallel_gpt(tandem::Builder& b, const tandem::ModelConfig& c) {
  tandem::Value x = b.embedding(c.vocab, c.width, /*positions=*/true);
  for (int layer = 0; layer < c.layers; ++layer) {
    const auto block = b.block(layer);
    const tandem::Value h = b.rms_norm(x, "norm");
    const tandem::Value qkv = b.linear(h, 3 * c.width, "qkv", {.dims = "heads,width"});
    const tandem::Value attended = b.attention(qkv, c.heads, c.heads);
    const tandem::Value mixed = b.linear(attended, c.width, "out", {.dims = "width,heads"});
    const tandem::Value up = b.gelu(b.linear(h, c.ffn_width(), "up", {.dims = "ffn,width"}));
    x = b.add(b.add(x, mixed), b.linear(up, c.width, "down", {.dims = "width,ffn"}));
    b.metric("stream/" + std::to_string(layer), x, /*squares=*/true);  // how large the stream has grown
  }
  b.cross_entropy(b.linear(b.rms_norm(x, "norm"), c.vocab, "head", {.bias = false, .dims = "vocab,width"}));
}

int main(int argc, char** argv) {
  return tandem::run_command_line(argc, argv, tandem::own_model(parallel_gpt));
}
