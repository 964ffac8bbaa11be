#include "tandem/train/run_data.h"

#include <algorithm>
#include <filesystem>

#include "tandem/base/error.h"
#include "tandem/config/derive.h"
#include "tandem/config/mesh.h"
#include "tandem/config/validate.h"
#include "tandem/data/images/mixed_images.h"
#include "tandem/data/mixture.h"
#include "tandem/data/open_dataset.h"
#include "tandem/store/store.h"

namespace tandem {

StorageOptions storage_options(const Config& config) {
  StorageOptions options{config.storage.endpoint, config.storage.region, std::nullopt, config.storage.cache,
                         config.storage.cache_size};
  if (config.storage.path_style != PathStyle::Auto)
    options.path_style = config.storage.path_style == PathStyle::Yes;
  return options;
}

SampleSpec sample_spec(const Config& config) {
  const ModelConfig& model = config.model;
  SampleSpec spec;
  if (model.is_language_model()) {
    spec.kind = SampleKind::Tokens;
    spec.context = model.context;
    spec.num_classes = model.vocab;
    spec.documents = config.data.documents == Documents::Separate;
  } else {
    spec.kind = SampleKind::Images;
    spec.height = spec.width = model.image_size;
    spec.channels = model.channels;
    spec.num_classes = model.classes;
    spec.mixed = config.data.mixup > 0;
  }
  return spec;
}

LoaderOptions train_loader_options(const Config& config, const MeshPosition& at) {
  LoaderOptions options;
  options.pass = Pass::Shuffled;
  options.dealt = deals_micro_batches(config);
  options.rank = at.data;
  options.world_size = at.shape.data;
  options.global_batch = config.train.batch;
  for (const StepValue& stretch : config.train.batch_ramp)
    options.ramp.push_back({stretch.step, static_cast<int64_t>(stretch.value)});
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

CountedIn unit_of(const ModelConfig& model) {
  if (model.is_language_model()) return CountedIn::Tokens;
  return model.has(kStages) ? CountedIn::Images : CountedIn::Samples;
}

bool names_on_both_sides(const DataConfig& data, const std::string& set) {
  std::error_code ignored;  // opening what cannot be looked at tells
  const auto names_it = [&](const DataSources& sources) {
    return std::any_of(sources.sets.begin(), sources.sets.end(), [&](const DataSource& other) {
      return other.path == set || std::filesystem::equivalent(other.path, set, ignored);
    });
  };
  return names_it(data.train) && names_it(data.eval);
}

bool keeps_end_apart(const DataConfig& data, const std::string& set) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(set, ignored) && names_on_both_sides(data, set);
}

bool keeps_ends_apart(const DataConfig& data) {
  return std::any_of(data.train.sets.begin(), data.train.sets.end(),
                     [&](const DataSource& set) { return keeps_end_apart(data, set.path); });
}

namespace {

std::unique_ptr<Dataset> open_all(const DataSources& sources, const auto& open) {
  if (sources.sets.size() == 1) return open(sources.sets.front().path);
  std::vector<Mixture::Set> sets;
  for (const DataSource& source : sources.sets) sets.push_back({open(source.path), source.weight});
  return std::make_unique<Mixture>(std::move(sets));
}

// Classes and channels are those of the training set, whichever set is opened.
ImageOptions image_options(const Config& config) {
  const DataConfig& data = config.data;
  ImageOptions options{.augmentation = {data.flip, data.pad, data.crop, data.color},
                       .skip_broken = data.broken == BrokenImages::Skip};
  std::vector<std::unique_ptr<ImageSource>> sources;
  std::vector<std::string> names;
  for (const DataSource& set : data.train.sets) {
    if (set.path.starts_with("builtin:")) continue;
    auto source = open_images(set.path, Split::Train);
    if (names_on_both_sides(data, set.path) && !source->has_own_split())
      source = part_of(std::move(source), Split::Train, set.path);
    sources.push_back(std::move(source));
    names.push_back(set.path);
  }
  options.facts = image_facts(sources, names,
                              {.side = config.model.image_size,
                               .channels = config.model.channels,
                               .normalize = data.normalize,
                               .skip_broken = options.skip_broken});
  return options;
}

}  // namespace

std::unique_ptr<Dataset> open_run_data(const Config& config, Split split) {
  use_storage(storage_options(config));
  DatasetOptions options;
  options.seed = static_cast<uint64_t>(config.train.seed);
  options.context = config.model.context;
  options.image_size = config.model.image_size;
  options.max_classes = config.model.is_language_model() ? config.model.vocab : config.model.classes;
  options.tokenizer = config.data.tokenizer;
  options.separate_documents = config.data.documents == Documents::Separate;
  const SampleSpec takes = sample_spec(config);
  options.kind = takes.kind;
  options.channels = takes.channels;
  if (takes.kind == SampleKind::Images) options.images = image_options(config);
  if (config.model.is_language_model() && config.data.tokenizer == "bytes" && config.model.vocab < 256) {
    throw ConfigError(
        "data.tokenizer: bytes needs a vocabulary of at least 256, but {} has {}; use its own tokenizer",
        config.model.from.empty() ? "the model" : config.model.from, config.model.vocab);
  }
  const auto open = [&](const std::string& name) {
    options.keep_end_apart = takes.kind == SampleKind::Images ? names_on_both_sides(config.data, name)
                                                              : keeps_end_apart(config.data, name);
    std::unique_ptr<Dataset> data = open_dataset(name, split, options);
    // The loader's memory and the graph's inputs are both of what the model takes.
    if (const SampleSpec has = data->spec(); has.input_elems() != takes.input_elems()) {
      throw ConfigError(
          "{}: a sample is {} x {} x {}, but the model takes {} x {} x {}; change model.channels", name,
          has.height, has.width, has.channels, takes.height, takes.width, takes.channels);
    }
    return data;
  };
  const DataSources& sources = split == Split::Train ? config.data.train : config.data.eval;
  std::unique_ptr<Dataset> data = open_all(sources, open);
  if (takes.mixed && split == Split::Train)
    data = std::make_unique<MixedImages>(std::move(data), config.data.mixup, options.seed);
  // Of a text file that is trained on nothing would be kept apart; to be evaluated on, it may be one
  // document.
  if (options.separate_documents && split == Split::Train && !data->knows_documents()) {
    throw ConfigError(
        "data.documents: separate, but {} is one document; prepare it (tandem prepare --split-on TEXT, or "
        "JSON "
        "Lines), or use joined",
        sources.text());
  }
  return data;
}

void resolve_epochs(ResolvedConfig& resolved) {
  if (resolved.config.train.epochs == 0) return;
  derive_epochs(resolved, open_run_data(resolved.config, Split::Train)->num_samples());
  validate(resolved);  // warm-up and decay against the steps that there are now
}

}  // namespace tandem
