#include "tandem/config/derive.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "tandem/base/error.h"
#include "tandem/config/batch_ramp.h"
#include "tandem/config/mesh.h"
#include "tandem/config/place.h"
#include "tandem/config/values.h"
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
  if (entry.averages) fill(resolved, "train.schedule", train.schedule, ScheduleKind::Constant, kOptimizer);
  if (train.clip_value > 0) fill(resolved, "train.clip", train.clip, 0.0, "train.clip_value");
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

// Of text, the samples that hold so many tokens.
int64_t samples_of_tokens(const Config& config) {
  const int64_t context = config.model.context;
  return config.train.tokens / context + (config.train.tokens % context != 0 ? 1 : 0);
}

void derive_steps(ResolvedConfig& resolved, std::string_view key, int64_t samples) {
  TrainConfig& train = resolved.config.train;
  const int64_t steps = steps_for_samples(train, samples);
  const double shown = key == "train.tokens" ? static_cast<double>(train.tokens) : train.epochs;
  if (steps < 1 || static_cast<double>(steps) > kMaxCount)
    throw ConfigError("{}: {} is {} steps of train.batch = {}; expected at least 1 and at most {}",
                      place_of(resolved, key), shown, steps, train.batch, kMaxCount);
  if (was_given(resolved, "train.steps") && train.steps != steps)
    throw ConfigError("{}: {} is {} steps, but train.steps is {}; keep one of the two keys",
                      place_of(resolved, key), shown, steps, train.steps);
  fill(resolved, "train.steps", train.steps, steps, key);
}

// What a schedule takes from the number of steps.
void derive_schedule(ResolvedConfig& resolved) {
  TrainConfig& train = resolved.config.train;
  constexpr std::string_view kSteps = "train.steps", kSchedule = "train.schedule";
  const bool one_cycle = train.schedule == ScheduleKind::OneCycle;
  if (train.schedule == ScheduleKind::Points) {
    fill(resolved, "train.warmup", train.warmup, int64_t{0}, kSchedule);
  } else {
    fill(resolved, "train.warmup", train.warmup, one_cycle ? train.steps * 3 / 10 : train.steps / 10, kSteps);
  }
  if (one_cycle) {  // as torch's OneCycleLR: div_factor 25, final_div_factor 1e4
    fill(resolved, "train.start_lr", train.start_lr, 1.0 / 25, kSchedule);
    fill(resolved, "train.min_lr", train.min_lr, 4e-6, kSchedule);
  }
  if (train.schedule == ScheduleKind::Wsd)
    fill_zero(resolved, "train.decay_steps", train.decay_steps, std::max<int64_t>(1, train.steps / 10),
              kSteps);
  if (train.schedule == ScheduleKind::Step)
    fill_zero(resolved, "train.step_every", train.step_every, std::max<int64_t>(1, train.steps / 3), kSteps);
}

}  // namespace

void derive_epochs(ResolvedConfig& resolved, int64_t num_samples) {
  TrainConfig& train = resolved.config.train;
  const double samples = std::ceil(train.epochs * static_cast<double>(num_samples) - 1e-6);
  if (samples > 1e18)
    throw ConfigError("{}: {} of {} samples are too many to count", place_of(resolved, "train.epochs"),
                      train.epochs, num_samples);
  derive_steps(resolved, "train.epochs", std::max<int64_t>(1, static_cast<int64_t>(samples)));
  // What followed from the default number of steps follows from this one.
  const Config defaults;
  const auto forget = [&](std::string_view key, int64_t& member, int64_t value) {
    if (was_given(resolved, key)) return;
    if (const auto known = resolved.origins.find(key); known != resolved.origins.end())
      resolved.origins.erase(known);
    member = value;
  };
  forget("train.warmup", train.warmup, defaults.train.warmup);
  forget("train.decay_steps", train.decay_steps, 0);
  forget("train.step_every", train.step_every, 0);
  derive_schedule(resolved);
}

void follow_ranks(Config& config, int num_ranks) {
  ParallelConfig& parallel = config.parallel;
  const int64_t others = parallel.tensor * parallel.pipeline;
  if (parallel.elastic == Elastic::Data && num_ranks % others == 0) parallel.data = num_ranks / others;
}

void derive(ResolvedConfig& resolved, int num_ranks) {
  derive_model(resolved);
  derive_data(resolved);
  derive_tokens(resolved);
  derive_optimizer(resolved);
  derive_data_axis(resolved, num_ranks);
  derive_micro_batch(resolved);
  TrainConfig& train = resolved.config.train;
  if (train.tokens > 0 && resolved.config.model.is_language_model())
    derive_steps(resolved, "train.tokens", samples_of_tokens(resolved.config));
  derive_schedule(resolved);
}

}  // namespace tandem
