#include "tandem/train/run_data.h"

#include <filesystem>

#include "tandem/base/error.h"
#include "tandem/data/open_dataset.h"

namespace tandem {

SampleSpec sample_spec(const ModelConfig& model) {
  SampleSpec spec;
  if (model.is_language_model()) {
    spec.kind = SampleKind::Tokens;
    spec.context = model.context;
    spec.num_classes = model.vocab;
  } else {
    spec.kind = SampleKind::Images;
    spec.height = spec.width = model.image_size;
    spec.channels = model.channels;
    spec.num_classes = model.classes;
  }
  return spec;
}

LoaderOptions train_loader_options(const Config& config, const MeshPosition& at) {
  LoaderOptions options;
  options.pass = Pass::Shuffled;
  options.rank = at.data;
  options.world_size = at.shape.data;
  options.global_batch = config.train.batch;
  options.micro_batch = config.train.micro_batch;
  options.workers = config.data.workers;
  options.prefetch = config.data.prefetch;
  options.seed = static_cast<uint64_t>(config.train.seed);
  return options;
}

LoaderOptions eval_loader_options(const Config& config, const MeshPosition& at) {
  LoaderOptions options;
  options.pass = Pass::Once;
  options.rank = at.data;
  options.world_size = at.shape.data;
  options.global_batch = config.train.micro_batch * at.shape.data;
  options.max_samples = config.data.eval_samples;
  options.micro_batch = config.train.micro_batch;
  return options;
}

Unit unit_of(const ModelConfig& model) {
  if (model.is_language_model()) return Unit::Tokens;
  return model.has(kStages) ? Unit::Images : Unit::Samples;
}

bool keeps_end_apart(const DataConfig& data) {
  std::error_code ignored;  // opening what cannot be looked at tells
  if (!std::filesystem::is_regular_file(data.train, ignored)) return false;
  return data.train == data.eval || std::filesystem::equivalent(data.train, data.eval, ignored);
}

std::unique_ptr<Dataset> open_run_data(const Config& config, Split split) {
  DatasetOptions options;
  options.seed = static_cast<uint64_t>(config.train.seed);
  options.context = config.model.context;
  options.image_size = config.model.image_size;
  options.max_classes = config.model.is_language_model() ? config.model.vocab : config.model.classes;
  options.tokenizer = config.data.tokenizer;
  options.keep_end_apart = keeps_end_apart(config.data);
  const SampleSpec takes = sample_spec(config.model);
  options.kind = takes.kind;
  const std::string& name = split == Split::Train ? config.data.train : config.data.eval;
  if (config.model.is_language_model() && config.data.tokenizer == "bytes" && config.model.vocab < 256) {
    throw ConfigError(
        "data.tokenizer: bytes needs a vocabulary of at least 256, but {} has {}; use its own tokenizer",
        config.model.from.empty() ? "the model" : config.model.from, config.model.vocab);
  }
  std::unique_ptr<Dataset> data = open_dataset(name, split, options);
  // The loader's memory and the graph's inputs are both of what the model takes.
  if (const SampleSpec has = data->spec(); has.input_elems() != takes.input_elems()) {
    throw ConfigError("{}: a sample is {} x {} x {}, but the model takes {} x {} x {}; change model.channels",
                      name, has.height, has.width, has.channels, takes.height, takes.width, takes.channels);
  }
  return data;
}

}  // namespace tandem
