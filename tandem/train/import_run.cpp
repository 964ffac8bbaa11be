#include "tandem/train/import_run.h"

#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/checkpoint/layout.h"
#include "tandem/checkpoint/writer.h"
#include "tandem/config/print.h"
#include "tandem/hub/kept_files.h"
#include "tandem/metrics/long_work.h"
#include "tandem/runtime/arena.h"
#include "tandem/text/tokenizer.h"
#include "tandem/train/compile_config.h"
#include "tandem/train/hub_start.h"
#include "tandem/train/loss_scaler.h"
#include "tandem/train/run_directory.h"

namespace tandem {
namespace {

CheckpointMeta first_meta(const Config& config) {
  CheckpointMeta meta;
  meta.batch = config.train.batch;
  meta.config = to_json(config);
  meta.scalars = {{"seed", config.train.seed},
                  {"updates", 0},
                  {"tokens", 0},
                  {"weights_only", true},
                  {"loss_scaler", LossScaler(config.train, config.precision).state()}};
  return meta;
}

// Text that the run will be given is read with the model's own tokenizer.
Config with_kept_tokenizer(Config config, const std::filesystem::path& run) {
  const std::filesystem::path kept = run / hub::kKeptFolder;
  if (config.data.tokenizer == kBytes && has_tokenizer_file(kept)) config.data.tokenizer = kept.string();
  return config;
}

}  // namespace

std::filesystem::path import_run(const Config& config, const Backend& backend, const BuildModel& model,
                                 const std::filesystem::path& run) {
  const hub::HubWeights weights = open_hub_weights(config);
  const CompiledStep step = compile_config(config, compile_options(config, backend), model);
  if (is_there(run / "checkpoints"))
    throw ConfigError("{}: holds a run already; name a new directory", run.string());
  const RunDirectory directory(run, {ResumeFrom::Kind::Latest, {}});
  RunLock lock;
  lock.take(directory.path());

  ThreadPool pool(thread_count(config));
  int64_t bytes = 0;
  for (const hub::ParamSources& param : weights.params())
    bytes += param.shape.elems() * dtype_bytes(DType::F32);
  const HostArena memory(bytes, pool);
  std::vector<TensorTarget> targets;
  std::vector<TensorView> views;
  std::span<std::byte> left = memory.span();
  for (const hub::ParamSources& param : weights.params()) {
    const auto own = left.first(static_cast<size_t>(param.shape.elems() * dtype_bytes(DType::F32)));
    left = left.subspan(own.size());
    targets.push_back({param.name, DType::F32, param.shape, own});
    views.push_back({param.name, DType::F32, param.shape, own});
  }
  LongWork work(fmt::format("reading {}", config.model.from), bytes);
  weights.read_all(targets, pool, [&](int64_t more) { work.done(more); });

  keep_hub(config, directory.path(), {});
  directory.write_plan(step);
  directory.write_config(with_kept_tokenizer(config, directory.path()), "");
  CheckpointWriter writer(directory.checkpoints(), static_cast<int>(config.checkpoint.keep), &pool);
  writer.save(first_meta(config), views);
  writer.wait_committed();
  return directory.checkpoints() / checkpoint_name(0);
}

}  // namespace tandem
