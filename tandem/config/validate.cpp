#include "tandem/config/validate.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/base/rope_frequencies.h"
#include "tandem/config/enum_names.h"
#include "tandem/config/keys.h"
#include "tandem/config/mesh.h"
#include "tandem/config/place.h"
#include "tandem/config/validate_data.h"
#include "tandem/config/validate_parallel.h"
#include "tandem/config/validate_size.h"
#include "tandem/config/validate_train.h"

namespace tandem {
namespace {

void check_divides(const ResolvedConfig& resolved, std::string_view part_key, int64_t part,
                   std::string_view whole_key, int64_t whole) {
  if (whole % part == 0) return;
  throw ConfigError("{}: {} must divide {}, and {} does not divide {}; use {} = {}",
                    place_of_first(resolved, {part_key, whole_key}), part_key, whole_key, part, whole,
                    part_key, nearest_divisors(whole, part));
}

void check_keys_of_family(const ResolvedConfig& resolved) {
  const Family family = resolved.config.model.family;
  for (const Key& key : keys()) {
    if (applies(key, family) || !was_given(resolved, key.path)) continue;
    std::vector<std::string_view> users;
    for (size_t i = 0; i < std::size(kFamilyNames); ++i) {
      if (applies(key, static_cast<Family>(i))) users.push_back(kFamilyNames[i]);
    }
    throw ConfigError("{}: a {} model has no such setting (it belongs to {}); remove it",
                      place_of(resolved, key.path), name_of(family), fmt::join(users, ", "));
  }
}

void check_keys_of_optimizer(const ResolvedConfig& resolved) {
  const OptimizerKind optimizer = resolved.config.train.optimizer;
  for (const Key& key : keys()) {
    if (applies(key, optimizer) || !was_given(resolved, key.path)) continue;
    std::vector<std::string_view> users;
    for (size_t i = 0; i < kNumOptimizers; ++i) {
      if (applies(key, static_cast<OptimizerKind>(i))) users.push_back(kOptimizers[i].name);
    }
    throw ConfigError("{}: {} has no such setting (it belongs to {}); remove it",
                      place_of(resolved, key.path), name_of(optimizer), fmt::join(users, ", "));
  }
}

void check_keys_of_schedule(const ResolvedConfig& resolved) {
  const ScheduleKind schedule = resolved.config.train.schedule;
  for (const Key& key : keys()) {
    if (applies(key, schedule) || !was_given(resolved, key.path)) continue;
    std::vector<std::string_view> users;
    for (size_t i = 0; i < std::size(kScheduleNames); ++i) {
      if (applies(key, static_cast<ScheduleKind>(i))) users.push_back(kScheduleNames[i]);
    }
    throw ConfigError("{}: train.schedule {} has no such setting (it belongs to {}); remove it",
                      place_of(resolved, key.path), name_of(schedule), fmt::join(users, ", "));
  }
}

void check_heads(const ResolvedConfig& resolved) {
  const ModelConfig& model = resolved.config.model;
  if (!model.is_language_model()) return;
  if (!was_given(resolved, "model.head"))
    check_divides(resolved, "model.heads", model.heads, "model.width", model.width);
  check_divides(resolved, "model.kv_heads", model.kv_heads, "model.heads", model.heads);
  if (!model.has(kRotary)) return;
  if (model.head_width() % 2 != 0) {
    throw ConfigError("{}: rotary positions need an even model.head, found {}; use other heads",
                      place_of_first(resolved, {"model.head", "model.heads", "model.width"}),
                      model.head_width());
  }
  if (model.rope_dims % 2 != 0 || model.rope_dims > model.head_width()) {
    throw ConfigError("{}: expected an even number of features, at most model.head = {}, found {}",
                      place_of(resolved, "model.rope_dims"), model.head_width(), model.rope_dims);
  }
  const std::string complaint = rope_scaling_complaint(model.rope_scaling, model.rope_dims);
  if (!complaint.empty()) throw ConfigError("{}: {}", place_of(resolved, "model.rope_scaling"), complaint);
}

void check_layers(const ResolvedConfig& resolved) {
  const ModelConfig& model = resolved.config.model;
  const auto check = [&](std::string_view key, const std::vector<int64_t>& layers) {
    for (int64_t layer : layers) {
      if (layer < model.layers) continue;
      throw ConfigError("{}: the last of model.layers = {} is layer {}, found {}", place_of(resolved, key),
                        model.layers, model.layers - 1, layer);
    }
  };
  check("model.no_rope_layers", model.no_rope_layers);
  check("model.full_layers", model.full_layers);
}

void check_images(const ResolvedConfig& resolved) {
  const ModelConfig& model = resolved.config.model;
  if (!model.has(kStages)) return;
  if (model.norm == ImageNorm::Group) {
    check_divides(resolved, "model.groups", model.groups, "model.width", model.width);
  }
  const size_t halvings = model.blocks.size() - 1;
  if (halvings >= 31 || (model.image_size >> halvings) < 1) {
    throw ConfigError(
        "{}: {} stages of model.blocks halve model.image_size {} to nothing; use fewer stages or larger "
        "images",
        place_of_first(resolved, {"model.blocks", "model.image_size"}), model.blocks.size(),
        model.image_size);
  }
}

void check_batch(const ResolvedConfig& resolved) {
  const TrainConfig& train = resolved.config.train;
  const bool dealt = deals_micro_batches(resolved.config);
  const int64_t data = resolved.config.parallel.data;
  const int64_t unit = train.micro_batch * (dealt ? 1 : data);
  if (train.batch % unit == 0) return;
  const int64_t below = train.batch / unit * unit;
  if (dealt) {
    throw ConfigError(
        "{}: train.batch must be a multiple of train.micro_batch = {}, found {}; use train.batch = {}",
        place_of_first(resolved, {"train.batch", "train.micro_batch"}), unit, train.batch,
        either(below, below + unit));
  }
  throw ConfigError(
      "{}: train.batch must be a multiple of train.micro_batch * parallel.data = {} * {} = {}, found {}; "
      "use train.batch = {}",
      place_of_first(resolved, {"train.batch", "train.micro_batch", "parallel.data"}), train.micro_batch,
      data, unit, train.batch, either(below, below + unit));
}

void check_name(const ResolvedConfig& resolved) {
  const std::string& name = resolved.config.name;
  const auto allowed = [](unsigned char c) { return std::isalnum(c) || c == '.' || c == '_' || c == '-'; };
  if (!name.empty() && name.front() != '.' && std::all_of(name.begin(), name.end(), allowed)) return;
  throw ConfigError("{}: expected letters, digits, '.', '_' and '-' (it names a directory), found {}",
                    place_of(resolved, "name"), in_quotes(name));
}

void check_spot(const ResolvedConfig& resolved) {
  const std::string& endpoint = resolved.config.spot.endpoint;
  if (endpoint.empty() || endpoint.starts_with("http://") || endpoint.starts_with("https://")) return;
  throw ConfigError("{}: expected a base URL such as http://HOST:PORT, found {}",
                    place_of(resolved, "spot.endpoint"), in_quotes(endpoint));
}

void check_log(const ResolvedConfig& resolved) {
  const LogConfig& log = resolved.config.log;
  const auto begins = [&](std::string_view scheme) {
    return log.webhook.starts_with(scheme) && log.webhook.size() > scheme.size();
  };
  if (!log.webhook.empty() && !begins("http://") && !begins("https://")) {
    throw ConfigError("{}: expected http://HOST/... or https://HOST/..., found {}",
                      place_of(resolved, "log.webhook"), in_quotes(log.webhook));
  }
  if (!log.prometheus_file.empty() && !log.prometheus_file.ends_with(".prom")) {
    throw ConfigError("{}: the node exporter reads files whose name ends with .prom, found {}",
                      place_of(resolved, "log.prometheus_file"), in_quotes(log.prometheus_file));
  }
  if (log.histograms > 0 && !log.tensorboard) {
    throw ConfigError("{}: they are written for TensorBoard; set log.tensorboard to true, too",
                      place_of(resolved, "log.histograms"));
  }
}

}  // namespace

void validate(const ResolvedConfig& resolved) {
  check_name(resolved);
  check_keys_of_family(resolved);
  check_keys_of_optimizer(resolved);
  check_keys_of_schedule(resolved);
  check_heads(resolved);
  check_layers(resolved);
  check_images(resolved);
  validate_data(resolved);
  check_batch(resolved);
  validate_train(resolved);
  validate_parallel(resolved);
  validate_size(resolved);
  check_spot(resolved);
  check_log(resolved);
}

}  // namespace tandem
