#include "tandem/train/checkpoint_meta.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "tandem/config/batch_ramp.h"
#include "tandem/config/print.h"

namespace tandem {

namespace {

// Of a mixture: where each of its sets is, and what the order was begun with.
nlohmann::json mixture_state(const DataSources& sources, const Loader& loader) {
  if (sources.sets.size() < 2) return nullptr;
  const MixtureStart& start = loader.sampler().start();
  const std::vector<int64_t> positions = loader.sampler().positions(loader.position());
  nlohmann::json sets = nlohmann::json::array();
  for (size_t i = 0; i < sources.sets.size(); ++i) {
    sets.push_back({{"path", sources.sets[i].path},
                    {"weight", sources.sets[i].weight},
                    {"start", start.positions[i]},
                    {"position", positions[i]}});
  }
  return {{"start", start.sample}, {"sets", sets}};
}

// The same sets and weights go on in the same order. Others begin here, each set where it was.
std::optional<MixtureStart> mixture_start(const CheckpointMeta& meta, const DataSources& sources) {
  if (sources.sets.size() < 2) return std::nullopt;
  nlohmann::json state = meta.scalars.value("mixture", nlohmann::json());
  if (state.is_null()) {  // of one set, until now
    const nlohmann::json before = meta.config.value("data", nlohmann::json::object()).value("train", "");
    state = {{"start", 0},
             {"sets", {{{"path", before}, {"weight", 0}, {"start", 0}, {"position", meta.samples}}}}};
  }
  const nlohmann::json& sets = state.at("sets");
  bool is_same = sets.size() == sources.sets.size();
  MixtureStart same{state.at("start"), {}}, anew{meta.samples, {}};
  for (size_t i = 0; i < sources.sets.size(); ++i) {
    const DataSource& source = sources.sets[i];
    is_same = is_same && sets[i].at("path") == source.path && sets[i].at("weight") == source.weight;
    if (is_same) same.positions.push_back(sets[i].at("start"));
    const auto found = std::find_if(sets.begin(), sets.end(),
                                    [&](const nlohmann::json& set) { return set.at("path") == source.path; });
    anew.positions.push_back(found == sets.end() ? 0 : found->at("position").get<int64_t>());
  }
  return is_same ? same : anew;
}

}  // namespace

CheckpointMeta checkpoint_meta(const Config& config, const MeshShape& mesh, const StepRecord& last,
                               const StepRunner& runner, const Loader& loader,
                               const std::string& data_fingerprint) {
  CheckpointMeta meta;
  meta.step = last.step;
  meta.epoch = last.epoch;
  meta.samples = loader.position();
  meta.batch = batch_of_step(config.train, std::max<int64_t>(1, last.step));
  meta.loss = last.loss;
  meta.metrics = {
      {std::string(rate_key(last.unit)), last.per_s}, {"grad_norm", last.grad_norm}, {"lr", last.lr}};
  if (last.eval_loss) meta.metrics["eval_loss"] = *last.eval_loss;
  if (last.eval_accuracy) meta.metrics["eval_accuracy"] = *last.eval_accuracy;
  meta.mesh = mesh;
  meta.config = to_json(config);
  meta.scalars = {{"seed", config.train.seed},
                  {"updates", runner.updates()},
                  {"tokens", last.count},
                  {"data", data_fingerprint},
                  {"loss_scaler", runner.scaler().state()}};
  if (nlohmann::json mixture = mixture_state(config.data.train, loader); !mixture.is_null())
    meta.scalars["mixture"] = std::move(mixture);
  return meta;
}

StepRecord restore_meta(const CheckpointMeta& meta, const Config& config, StepRunner& runner,
                        Loader& loader) {
  runner.set_updates(meta.scalars.at("updates").get<int64_t>());
  runner.scaler().restore(meta.scalars.at("loss_scaler"));
  loader.seek(meta.samples, mixture_start(meta, config.data.train), meta.step);
  const auto measured = [&](const char* key) {
    const auto found = meta.metrics.find(key);
    return found != meta.metrics.end() && found->is_number() ? std::optional(found->get<float>())
                                                             : std::nullopt;
  };
  StepRecord last;
  last.step = meta.step;
  last.epoch = meta.epoch;
  last.loss = static_cast<float>(meta.loss);
  last.count = meta.scalars.at("tokens").get<int64_t>();  // of whatever the run counts
  last.per_s = meta.metrics.value("tokens_per_s", meta.metrics.value("samples_per_s", 0.0));
  last.eval_loss = measured("eval_loss");
  last.eval_accuracy = measured("eval_accuracy");
  return last;
}

std::vector<std::string> changes_of_data(const CheckpointMeta& meta, std::span<const ConfigChange> changes,
                                         const Config& config, const std::string& data_fingerprint) {
  std::vector<std::string> told;
  for (const ConfigChange& change : changes) {
    if (change.changeable != Changeable::Reordered) continue;
    told.push_back(fmt::format("{} was {} and is now {}: samples come in another order than before",
                               change.key, change.before.dump(), change.after.dump()));
  }
  const std::string before = meta.scalars.value("data", data_fingerprint);  // older checkpoints have none
  if (told.empty() && before != data_fingerprint) {
    // Whether the end of a text is kept apart depends on data.eval.
    const auto eval = std::find_if(changes.begin(), changes.end(),
                                   [](const ConfigChange& change) { return change.key == "data.eval"; });
    told.push_back(
        eval != changes.end()
            ? fmt::format("data.eval was {} and is now {}: training sees another part of "
                          "data.train, and samples come in another order than before",
                          eval->before.dump(), eval->after.dump())
            : fmt::format(
                  "data.train {} has other contents than before: samples may come twice or not at all",
                  config.data.train.text()));
  }
  return told;
}

}  // namespace tandem
