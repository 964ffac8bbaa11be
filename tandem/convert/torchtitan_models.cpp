// The models of torchtitan that Tandem's builder makes, with the sizes that torchtitan gives them.
#include <algorithm>

#include "tandem/convert/formats.h"

namespace tandem::convert {
namespace {

struct Shape {
  std::string_view name, flavor;
  int64_t width, layers, heads, kv_heads, head, ffn, vocab;
  bool tied;
};

constexpr Shape kShapes[] = {
    {"llama3", "debugmodel", 256, 6, 16, 16, 16, 768, 2048, false},
    {"llama3", "8B", 4096, 32, 32, 8, 128, 14336, 128256, false},
    {"llama3", "70B", 8192, 80, 64, 8, 128, 28672, 128256, false},
    {"llama3", "405B", 16384, 126, 128, 8, 128, 53248, 128256, false},
    {"qwen3", "debugmodel", 256, 8, 16, 8, 128, 3072, 2048, true},
    {"qwen3", "0.6B", 1024, 28, 16, 8, 128, 3072, 151936, true},
    {"qwen3", "1.7B", 2048, 28, 16, 8, 128, 6144, 151936, true},
    {"qwen3", "4B", 2560, 36, 32, 8, 128, 9728, 151936, true},
    {"qwen3", "8B", 4096, 36, 32, 8, 128, 12288, 151936, false},
    {"qwen3", "14B", 5120, 40, 40, 8, 128, 17408, 151936, false},
    {"qwen3", "32B", 5120, 64, 64, 8, 128, 25600, 151936, false},
};

}  // namespace

bool set_torchtitan_model(const std::string& name, const std::string& flavor, Draft& draft) {
  // "8B_flex" and "8B_varlen" are 8B with other kernels of attention.
  const std::string plain = flavor.substr(
      0, flavor.find("_flex") == std::string::npos ? flavor.find("_varlen") : flavor.find("_flex"));
  const auto found = std::find_if(std::begin(kShapes), std::end(kShapes), [&](const Shape& shape) {
    return shape.name == name && shape.flavor == plain;
  });
  if (found == std::end(kShapes)) return false;
  draft.set("model.family", "llama");
  draft.set("model.width", found->width);
  draft.set("model.layers", found->layers);
  draft.set("model.heads", found->heads);
  draft.set("model.kv_heads", found->kv_heads);
  draft.set("model.head", found->head);
  draft.set("model.ffn", found->ffn);
  draft.set("model.vocab", found->vocab);
  draft.set("model.tied", found->tied);
  if (name == "qwen3") {
    draft.set("model.qk_norm", "head");
    draft.set("model.rope_theta", 1000000);
    draft.set("model.norm_eps", 1e-6);
  } else {
    draft.set("model.rope_theta", 500000);
    draft.assumed(
        "model.rope_scaling",
        "llama3:factor=8,low_freq_factor=1,high_freq_factor=4,original_max_position_embeddings=8192",
        "as newer versions of torchtitan have it; older ones have none");
  }
  if (plain != flavor)
    draft.lost("model.flavor", flavor, "documents are joined: attention goes across their ends");
  return true;
}

}  // namespace tandem::convert
