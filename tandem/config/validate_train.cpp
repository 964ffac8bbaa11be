#include "tandem/config/validate_train.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "tandem/base/error.h"
#include "tandem/config/enum_names.h"
#include "tandem/config/mesh.h"
#include "tandem/config/place.h"
#include "tandem/config/values.h"

namespace tandem {
namespace {

void check_length(const ResolvedConfig& resolved) {
  const TrainConfig& train = resolved.config.train;
  if (train.tokens > 0 && train.epochs > 0)
    throw ConfigError("{}: train.tokens and train.epochs both say how long to train; keep one",
                      place_of_first(resolved, {"train.epochs", "train.tokens"}));
}

void check_rate(const ResolvedConfig& resolved) {
  const TrainConfig& train = resolved.config.train;
  if (train.lr_scaling != LrScaling::None && train.lr_batch == 0)
    throw ConfigError("{}: {} needs train.lr_batch, the batch that train.lr was found with",
                      place_of(resolved, "train.lr_scaling"), name_of(train.lr_scaling));
  if (train.lr_scaling == LrScaling::None && train.lr_batch > 0)
    throw ConfigError("{}: is used with train.lr_scaling: linear or sqrt; set that, or remove this",
                      place_of(resolved, "train.lr_batch"));
  const bool has_terms = train.label_smoothing > 0 || train.z_loss > 0;
  if (has_terms && resolved.config.parallel.tensor > 1)
    throw ConfigError(
        "{}: the loss of a split vocabulary is plain cross-entropy; use parallel.tensor = 1",
        place_of(resolved, train.label_smoothing > 0 ? "train.label_smoothing" : "train.z_loss"));
}

void check_clipping(const ResolvedConfig& resolved) {
  const TrainConfig& train = resolved.config.train;
  if (train.clip > 0 && train.clip_value > 0)
    throw ConfigError("{}: gradients are clipped by their norm or by value; remove train.clip or this",
                      place_of(resolved, "train.clip_value"));
}

void check_averaging(const ResolvedConfig& resolved) {
  const TrainConfig& train = resolved.config.train;
  if (optimizer_entry(train.optimizer).averages && train.schedule != ScheduleKind::Constant)
    throw ConfigError("{}: {} averages weights where others let the rate fall; use constant",
                      place_of(resolved, "train.schedule"), name_of(train.optimizer));
  if (optimizer_entry(train.optimizer).averages && train.ema > 0)
    throw ConfigError("{}: {} keeps an average of its own; remove train.ema", place_of(resolved, "train.ema"),
                      name_of(train.optimizer));
  if (train.ema_eval && train.ema == 0)
    throw ConfigError("{}: there is no average of the weights; set train.ema, such as 0.999",
                      place_of(resolved, "train.ema_eval"));
  if (train.ema_eval && train.eval_every == 0)
    throw ConfigError("{}: is for evaluations; set train.eval_every", place_of(resolved, "train.ema_eval"));
}

void check_groups(const ResolvedConfig& resolved) {
  for (const TrainGroup& group : resolved.config.train.groups) {
    if (group.frozen && (group.lr != 1 || group.decay != 1))
      throw ConfigError("{}: {} is frozen, which leaves nothing for lr and decay; remove them, or frozen",
                        place_of(resolved, "train.groups"), in_quotes(group.match));
  }
}

void check_rising(const ResolvedConfig& resolved, std::string_view key,
                  const std::vector<StepValue>& values) {
  for (size_t i = 1; i < values.size(); ++i) {
    if (values[i].step > values[i - 1].step) continue;
    throw ConfigError("{}: expected steps that rise, found {} after {}", place_of(resolved, key),
                      values[i].step, values[i - 1].step);
  }
}

void check_schedule(const ResolvedConfig& resolved) {
  const TrainConfig& train = resolved.config.train;
  if (train.schedule == ScheduleKind::Points) {
    if (train.points.empty())
      throw ConfigError("{}: points needs train.points, such as [[0, 0], [100, 1], [1000, 0.1]]",
                        place_of(resolved, "train.schedule"));
    if (train.warmup > 0)
      throw ConfigError("{}: points say how the learning rate rises, too; remove train.warmup",
                        place_of(resolved, "train.warmup"));
    check_rising(resolved, "train.points", train.points);
  }
  if (train.schedule == ScheduleKind::Wsd && train.decay_steps > train.steps - train.warmup)
    throw ConfigError("{}: {} steps of warm-up and {} of decay are more than train.steps = {}",
                      place_of_first(resolved, {"train.decay_steps", "train.warmup", "train.steps"}),
                      train.warmup, train.decay_steps, train.steps);
}

void check_ramp(const ResolvedConfig& resolved) {
  const TrainConfig& train = resolved.config.train;
  const ParallelConfig& parallel = resolved.config.parallel;
  if (train.batch_ramp.empty()) return;
  const std::string place = place_of(resolved, "train.batch_ramp");
  check_rising(resolved, "train.batch_ramp", train.batch_ramp);
  if (train.batch_ramp.front().step == 0)
    throw ConfigError("{}: a batch lasts up to a step of at least 1, found 0", place);
  const int64_t data = deals_micro_batches(resolved.config) ? 1 : parallel.data;
  const int64_t unit = train.micro_batch * data;
  double before = 0;
  for (const StepValue& stretch : train.batch_ramp) {
    const double batch = stretch.value;
    if (batch != std::floor(batch) || static_cast<int64_t>(batch) % unit != 0)
      throw ConfigError(
          "{}: expected multiples of train.micro_batch * parallel.data = {} * {} = {}, found {}", place,
          train.micro_batch, data, unit, batch);
    if (batch <= before || batch >= static_cast<double>(train.batch))
      throw ConfigError("{}: expected batches that rise and stay below train.batch = {}, found {}", place,
                        train.batch, batch);
    before = batch;
  }
  if (parallel.pipeline > 1)
    throw ConfigError(
        "{}: a pipeline's step is compiled for one number of passes; use parallel.pipeline = 1, or no ramp",
        place);
}

// Their names are part of metrics' names.
void check_eval_sets(const ResolvedConfig& resolved) {
  const auto allowed = [](unsigned char c) { return std::isalnum(c) || c == '.' || c == '_' || c == '-'; };
  std::set<std::string_view> names;
  for (const DataSource& set : resolved.config.data.train.sets) {
    if (!set.name.empty())
      throw ConfigError("{}: evaluation sets have names; remove 'name: {}'", place_of(resolved, "data.train"),
                        shortened(set.name));
  }
  const auto& sets = resolved.config.data.eval.sets;
  for (const DataSource& set : sets) {
    if (set.name.empty()) {
      if (std::any_of(sets.begin(), sets.end(), [](const DataSource& other) { return !other.name.empty(); }))
        throw ConfigError("{}: expected a name for each set, or for none; {} has none",
                          place_of(resolved, "data.eval"), in_quotes(set.path));
      continue;
    }
    if (set.name.size() > 64 || !std::all_of(set.name.begin(), set.name.end(), allowed))
      throw ConfigError("{}: expected a name of letters, digits, '.', '_' and '-', found {}",
                        place_of(resolved, "data.eval"), in_quotes(set.name));
    if (!names.insert(set.name).second)
      throw ConfigError("{}: two sets are called {}", place_of(resolved, "data.eval"), in_quotes(set.name));
  }
}

void check_best(const ResolvedConfig& resolved) {
  const Config& config = resolved.config;
  const std::string& best = config.checkpoint.best;
  if (config.train.patience > 0 && config.train.eval_every == 0)
    throw ConfigError("{}: counts evaluations; set train.eval_every", place_of(resolved, "train.patience"));
  if (best == "none") return;
  const std::string place = place_of(resolved, "checkpoint.best");
  std::string names;
  bool known = false;
  for (const std::string metric : {"eval_loss", "eval_loss_ema"}) {
    if (metric == "eval_loss_ema" && !config.train.ema_eval) continue;
    known = known || best == metric;
    names += ", " + metric;
    for (const DataSource& set : config.data.eval.sets) {
      if (set.name.empty()) continue;
      known = known || best == metric + "/" + set.name;
      names += ", " + metric + "/" + set.name;
    }
  }
  if (!known && best.starts_with("eval_loss_ema") && !config.train.ema_eval)
    throw ConfigError("{}: evaluations are of the last weights only; set train.ema_eval", place);
  if (!known) throw ConfigError("{}: expected one of none{}, found {}", place, names, in_quotes(best));
  if (config.train.eval_every == 0)
    throw ConfigError("{}: is found by evaluations; set train.eval_every", place);
}

}  // namespace

void validate_train(const ResolvedConfig& resolved) {
  const TrainConfig& train = resolved.config.train;
  if (train.budget.usd > 0 && train.price.usd == 0)
    throw ConfigError("{}: needs to know what an hour costs; set train.price, such as 12.5USD/h",
                      place_of(resolved, "train.budget"));
  check_length(resolved);
  check_clipping(resolved);
  check_averaging(resolved);
  check_rate(resolved);
  check_groups(resolved);
  check_schedule(resolved);
  check_ramp(resolved);
  check_eval_sets(resolved);
  check_best(resolved);
}

}  // namespace tandem
