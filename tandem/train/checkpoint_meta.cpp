#include "tandem/train/checkpoint_meta.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "tandem/config/print.h"

namespace tandem {

CheckpointMeta checkpoint_meta(const Config& config, const MeshShape& mesh, const StepRecord& last,
                               const StepRunner& runner, const Loader& loader,
                               const std::string& data_fingerprint) {
  CheckpointMeta meta;
  meta.step = last.step;
  meta.epoch = last.epoch;
  meta.samples = loader.position();
  meta.batch = config.train.batch;
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
  return meta;
}

StepRecord restore_meta(const CheckpointMeta& meta, StepRunner& runner, Loader& loader) {
  runner.set_updates(meta.scalars.at("updates").get<int64_t>());
  runner.scaler().restore(meta.scalars.at("loss_scaler"));
  loader.seek(meta.samples);
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
                  config.data.train));
  }
  return told;
}

}  // namespace tandem
