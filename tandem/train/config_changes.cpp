#include "tandem/train/config_changes.h"

#include <fmt/format.h>

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/config/keys.h"

namespace tandem {
namespace {

using enum Changeable;

constexpr KeyRule kRules[] = {
    {"name", Freely},
    {"device", Freely},
    {"threads", Freely},

    {"model.family", Never},
    {"model.from", Freely},  // once begun, a run has its weights
    {"model.init", Freely},
    {"model.layers", Never},
    {"model.width", Never},
    {"model.heads", Never},
    {"model.kv_heads", Never},
    {"model.head", Never},
    {"model.context", Reordered},  // where positions have no weights of their own
    {"model.vocab", Never},
    {"model.ffn", Never},
    {"model.rope_theta", Never},
    {"model.rope_local_theta", Never},
    {"model.rope_scaling", Never},
    {"model.rope_dims", Never},
    {"model.no_rope_layers", Never},
    {"model.window", Never},
    {"model.full_layers", Never},
    {"model.attention_scale", Never},
    {"model.attention_softcap", Never},
    {"model.logit_softcap", Never},
    {"model.logit_scale", Never},
    {"model.embed_scale", Never},
    {"model.residual_scale", Never},
    {"model.qk_norm", Never},
    {"model.norm_place", Never},
    {"model.norm_plus_one", Never},
    {"model.activation", Never},
    {"model.norm_eps", Never},
    {"model.dropout", Freely},
    {"model.tied", Never},
    {"model.qkv_bias", Never},
    {"model.out_bias", Never},
    {"model.ffn_bias", Never},
    {"model.image_size", Never},
    {"model.channels", Never},
    {"model.classes", Never},
    {"model.blocks", Never},
    {"model.bottleneck", Never},
    {"model.stem", Never},
    {"model.norm", Never},    // but between batch and sync
    {"model.groups", Never},  // where there are any

    {"data.train", Reordered},
    {"data.eval", Freely},
    {"data.tokenizer", Never},  // but from one file to another
    {"data.documents", Freely},
    {"data.flip", Freely},
    {"data.pad", Freely},
    {"data.crop", Freely},
    {"data.color", Freely},
    {"data.mixup", Freely},
    {"data.normalize", Freely},
    {"data.broken", Freely},
    {"data.workers", Freely},
    {"data.prefetch", Freely},
    {"data.eval_samples", Freely},

    {"train.steps", Freely},
    {"train.tokens", Freely},
    {"train.epochs", Freely},
    {"train.batch", Freely},
    {"train.batch_ramp", Freely},  // from the step it is at
    {"train.micro_batch", Freely},
    {"train.optimizer", NotResumed},
    {"train.lr", Freely},
    {"train.lr_scaling", Freely},
    {"train.lr_batch", Freely},
    {"train.min_lr", Freely},
    {"train.start_lr", Freely},
    {"train.schedule", Freely},
    {"train.warmup", Freely},
    {"train.decay_steps", Freely},
    {"train.decay_shape", Freely},
    {"train.step_every", Freely},
    {"train.step_factor", Freely},
    {"train.points", Freely},
    {"train.optimizer_state", Freely},
    {"train.adjust_lr", Freely},
    {"train.weight_decay", Freely},
    {"train.groups", Freely},  // but for what is frozen
    {"train.ema", Freely},     // where there is one before and after
    {"train.ema_eval", Freely},
    {"train.clip", Freely},
    {"train.clip_value", Freely},
    {"train.label_smoothing", Freely},
    {"train.z_loss", Freely},
    {"train.seed", Reordered},
    {"train.eval_every", Freely},
    {"train.eval_at_start", Freely},
    {"train.patience", Freely},
    {"train.budget", Freely},
    {"train.price", Freely},
    {"train.min_delta", Freely},
    {"train.loss_scale", Freely},
    {"train.loss_scale_window", Freely},

    {"parallel.strategy", Freely},
    {"parallel.data", Freely},
    {"parallel.tensor", Freely},
    {"parallel.pipeline", Freely},
    {"parallel.schedule", Freely},
    {"parallel.chunks", Freely},
    {"parallel.sync", Freely},
    {"parallel.reduce", Freely},
    {"parallel.partial", Freely},
    {"parallel.elastic", Freely},
    {"parallel.reproducible", Freely},
    {"parallel.tls", Freely},
    {"parallel.timeout", Freely},

    {"precision", Freely},

    {"memory.recompute", Freely},
    {"memory.gradients", Freely},
    {"memory.gelu", Freely},
    {"memory.offload", Freely},
    {"memory.limit", Freely},
    {"memory.scratch", Freely},

    {"checkpoint.every", Freely},
    {"checkpoint.minutes", Freely},
    {"checkpoint.mtbf", Freely},
    {"checkpoint.on_notice", Freely},
    {"checkpoint.keep", Freely},
    {"checkpoint.memory", Freely},
    {"checkpoint.replay", Freely},
    {"checkpoint.async", Freely},
    {"checkpoint.best", Freely},
    {"checkpoint.store", Freely},
    {"storage.endpoint", Freely},
    {"storage.region", Freely},
    {"storage.path_style", Freely},
    {"storage.cache", Freely},
    {"storage.cache_size", Freely},

    {"spot.watch", Freely},
    {"spot.endpoint", Freely},
    {"spot.file", Freely},

    {"log.csv", Freely},
    {"log.jsonl", Freely},
    {"log.tensorboard", Freely},
    {"log.wandb", Freely},
    {"log.comet", Freely},
    {"log.prometheus", Freely},
    {"log.prometheus_file", Freely},
    {"log.webhook", Freely},
    {"log.histograms", Freely},
};

nlohmann::json key_value(const Config& config, std::string_view key) { return find_key(key)->read(config); }

// The patterns of train.groups, where one of them freezes.
std::vector<std::pair<std::string, bool>> frozen_matches(const nlohmann::json& groups) {
  std::vector<std::pair<std::string, bool>> patterns;
  bool any = false;
  for (const nlohmann::json& group : groups) {
    patterns.emplace_back(group.value("match", ""), group.value("frozen", false));
    any = any || patterns.back().second;
  }
  return any ? patterns : decltype(patterns)();
}

// A few keys mean something in some models only.
Changeable in_config(const KeyRule& rule, const Config& config, const CheckpointMeta& meta,
                     const nlohmann::json& before) {
  const ModelConfig& model = config.model;
  // What was imported has read no text here.
  if (rule.key == "data.tokenizer" && meta.scalars.value("weights_only", false)) return Freely;
  if (rule.key == "model.context" && model.has(kWeightedPositions)) return Never;
  if (rule.key == "model.norm" && model.norm != ImageNorm::Group && before != "group") return Freely;
  if (rule.key == "model.groups" && model.norm != ImageNorm::Group) return Freely;
  if (rule.key == "train.ema" && (before.get<double>() == 0) != (config.train.ema == 0)) return NotResumed;
  // Frozen parameters have no optimizer state.
  if (rule.key == "train.groups" && frozen_matches(before) != frozen_matches(key_value(config, rule.key)))
    return NotResumed;
  // A tokenizer may have moved; data that was made with another one is refused when it is opened.
  if (rule.key == "data.tokenizer" && before != "bytes" && config.data.tokenizer != "bytes") return Freely;
  return rule.changeable;
}

const nlohmann::json* value_at(const nlohmann::json& config, std::string_view key) {
  const size_t dot = key.find('.');
  const nlohmann::json* at = &config;
  if (dot != std::string_view::npos) {
    const auto section = config.find(std::string(key.substr(0, dot)));
    if (section == config.end() || !section->is_object()) return nullptr;
    at = &*section;
    key.remove_prefix(dot + 1);
  }
  const auto found = at->find(std::string(key));
  return found == at->end() ? nullptr : &*found;
}

// On one line, and without quotes where none are needed.
std::string value_text(const nlohmann::json& value) {
  const std::string quoted = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (!value.is_string() || quoted.size() == 2) return quoted;
  const std::string& text = value.get_ref<const std::string&>();
  return text.size() + 2 == quoted.size() ? text : quoted;
}

void refuse(const Manifest& manifest, const Config& config, Changeable least, std::string_view instead) {
  std::vector<ConfigChange> bad = config_changes(manifest.meta, config);
  std::erase_if(bad, [&](const ConfigChange& change) { return change.changeable > least; });
  if (bad.empty()) return;
  const ConfigChange& first = bad.front();
  std::string others;
  for (size_t i = 1; i < bad.size(); ++i) others += fmt::format("{}{}", i == 1 ? "" : ", ", bad[i].key);
  throw DataError("{}: is {}, but {} was trained with {}: {}{}; {}", first.key, value_text(first.after),
                  manifest.directory.string(), value_text(first.before),
                  first.changeable == Never ? "it is of another model" : "it has another optimizer's state",
                  others.empty() ? "" : fmt::format(" (and {})", others),
                  fmt::format(fmt::runtime(instead), first.key, value_text(first.before)));
}

}  // namespace

std::span<const KeyRule> key_rules() {
  static const std::vector<KeyRule> kAll = [] {
    std::vector<KeyRule> rules(std::begin(kRules), std::end(kRules));
    for (const HyperParam& param : kHyperKeys) rules.push_back({param.key, Freely});  // as any other rate
    return rules;
  }();
  return kAll;
}

std::string ConfigChange::text() const {
  return fmt::format("{} {} -> {}", key, value_text(before), value_text(after));
}

std::vector<ConfigChange> config_changes(const CheckpointMeta& meta, const Config& config) {
  std::vector<ConfigChange> changes;
  for (const Key& key : keys()) {
    const nlohmann::json* before = value_at(meta.config, key.path);
    if (before == nullptr || !applies(key, config)) continue;
    const nlohmann::json after = key.read(config);
    if (*before == after) continue;
    const auto rule = std::find_if(key_rules().begin(), key_rules().end(),
                                   [&](const KeyRule& r) { return r.key == key.path; });
    TANDEM_CHECK(rule != key_rules().end(), "{}: whether it may change is not said", key.path);
    changes.push_back({rule->key, in_config(*rule, config, meta, *before), *before, after});
  }
  return changes;
}

bool changes_evaluations(const ConfigChange& change) {
  return change.key == "data.eval" || change.key == "data.eval_samples";
}

void require_resumable(const Manifest& manifest, const Config& config) {
  refuse(manifest, config, NotResumed,
         "set {0}={1} to go on, or start anew with another --run-dir or --resume-from-checkpoint none");
}

void require_same_function(const Manifest& manifest, const Config& config) {
  refuse(manifest, config, Never, "leave out --set {0}");
}

}  // namespace tandem
