#include "tandem/config/derive.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "tandem/base/error.h"
#include "tandem/config/mesh.h"
#include "tandem/config/place.h"
#include "tandem/text/tokenizer.h"

namespace tandem {
namespace {

// Sets a value the user did not give. One that comes out as the default stays "default".
template <typename T>
void fill(ResolvedConfig& resolved, std::string_view key, T& member, const T& value, std::string_view from) {
  if (resolved.origins.contains(key) || member == value) return;
  member = value;
  resolved.origins[std::string(key)] = fmt::format("derived from {}", from);
}

// The same for a key whose 0 asks for the derived value.
void fill_zero(ResolvedConfig& resolved, std::string_view key, int64_t& member, int64_t value,
               std::string_view from) {
  if (member != 0) return;
  member = value;
  resolved.origins[std::string(key)] = fmt::format("derived from {}", from);
}

void derive_model(ResolvedConfig& resolved) {
  ModelConfig& model = resolved.config.model;
  constexpr std::string_view kFamily = "model.family";
  const FamilyInfo& family = info_of(model.family);
  fill(resolved, "model.width", model.width, family.width, kFamily);
  fill_zero(resolved, "model.kv_heads", model.kv_heads, model.num_kv_heads(), "model.heads");
  if (model.is_language_model())
    fill_zero(resolved, "model.head", model.head, model.width / model.heads, "model.width");
  if (model.has(kRotary)) fill_zero(resolved, "model.rope_dims", model.rope_dims, model.head, "model.head");
  fill_zero(resolved, "model.ffn", model.ffn, model.ffn_width(), "model.width");
  fill(resolved, "model.tied", model.tied, family.tied, kFamily);
  fill(resolved, "model.qkv_bias", model.qkv_bias, family.qkv_bias, kFamily);
}

void derive_data(ResolvedConfig& resolved) {
  DataConfig& data = resolved.config.data;
  const DataSources builtin =
      resolved.config.model.is_language_model() ? "builtin:stories" : "builtin:shapes";
  fill(resolved, "data.train", data.train, builtin, "model.family");
  fill(resolved, "data.eval", data.eval, data.train, "data.train");
}

// Whether `tandem prepare` wrote it, with another tokenizer than bytes: it has a copy of that one.
bool has_tokenizer(const std::string& set) {
  std::error_code ignored;
  const std::filesystem::path folder(set);
  return std::filesystem::is_regular_file(folder / "index.json", ignored) && has_tokenizer_file(folder);
}

void derive_tokens(ResolvedConfig& resolved) {
  Config& config = resolved.config;
  if (!config.model.is_language_model()) return;
  if (const std::string& first = config.data.train.sets.front().path; has_tokenizer(first))
    fill(resolved, "data.tokenizer", config.data.tokenizer, first, "data.train");
  if (config.data.tokenizer == kBytes || resolved.origins.contains("model.vocab")) return;
  try {
    const int64_t vocab = make_tokenizer(config.data.tokenizer)->vocab_size();
    fill(resolved, "model.vocab", config.model.vocab, vocab, "data.tokenizer");
  } catch (const ConfigError& error) {
    throw ConfigError("{}: {}", place_of(resolved, "data.tokenizer"), error.what());
  }
}

void derive_optimizer(ResolvedConfig& resolved) {
  TrainConfig& train = resolved.config.train;
  constexpr std::string_view kOptimizer = "train.optimizer";
  const OptimizerEntry& entry = optimizer_entry(train.optimizer);
  fill(resolved, "train.lr", train.lr, entry.lr, kOptimizer);
  for (const HyperParam& param : entry.hyper)
    fill(resolved, param.key, train.hyper[hyper_key_index(param.key)], param.value, kOptimizer);
}

// The ranks that were started and that the other axes leave over.
void derive_data_axis(ResolvedConfig& resolved, int num_ranks) {
  ParallelConfig& parallel = resolved.config.parallel;
  const int64_t others = parallel.tensor * parallel.pipeline;
  if (parallel.strategy == Strategy::Single || parallel.strategy == Strategy::Dp) return;
  if (num_ranks % others != 0) return;  // joining the ranks tells what does not fit
  fill(resolved, "parallel.data", parallel.data, num_ranks / others, "the number of ranks");
}

// The largest micro-batch up to the default one that cuts a rank's share evenly and suits the mesh; where
// none does both, validate names what is in the way.
void derive_micro_batch(ResolvedConfig& resolved) {
  if (resolved.origins.contains("train.micro_batch")) return;
  TrainConfig& train = resolved.config.train;
  const int64_t share = train.batch / resolved.config.parallel.data;
  int64_t micro_batch = largest_micro_batch(resolved.config, train.micro_batch);
  if (micro_batch == 0) {
    micro_batch = std::min(train.micro_batch, std::max<int64_t>(share, 1));
    while (share % micro_batch != 0) --micro_batch;
  }
  fill(resolved, "train.micro_batch", train.micro_batch, micro_batch, "train.batch");
}

}  // namespace

void derive(ResolvedConfig& resolved, int num_ranks) {
  derive_model(resolved);
  derive_data(resolved);
  derive_tokens(resolved);
  derive_optimizer(resolved);
  derive_data_axis(resolved, num_ranks);
  derive_micro_batch(resolved);
  TrainConfig& train = resolved.config.train;
  fill(resolved, "train.warmup", train.warmup, train.steps / 10, "train.steps");
}

}  // namespace tandem
