#include "tandem/data/open_dataset.h"

#include <filesystem>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/nearest.h"
#include "tandem/data/held_out.h"
#include "tandem/data/shapes.h"
#include "tandem/data/stories.h"
#include "tandem/data/token_windows.h"
#include "tandem/data/tokenized_text.h"
#include "tandem/text/tokenizer.h"

namespace tandem {
namespace {

constexpr std::string_view kPrefix = "builtin:";
constexpr std::string_view kBuiltins[] = {"builtin:stories", "builtin:shapes"};

std::unique_ptr<Dataset> open_builtin(std::string_view name, Split split, const DatasetOptions& options) {
  if (name == "builtin:stories" && options.tokenizer != kBytes) {
    throw ConfigError(
        "builtin:stories: is text in bytes, but data.tokenizer is {}; use bytes, or another set",
        options.tokenizer);
  }
  if (name == "builtin:stories") {
    return std::make_unique<Stories>(options.context, split, options.seed, options.separate_documents);
  }
  if (name == "builtin:shapes") {
    if (options.image_size < Shapes::kMinSize) {
      throw ConfigError("builtin:shapes: image size {}: expected at least {}", options.image_size,
                        Shapes::kMinSize);
    }
    auto shapes = std::make_unique<Shapes>(options.image_size, split, options.seed);
    const Augmentation& how = options.images.augmentation;
    if (split == Split::Eval || !how.any()) return shapes;
    return std::make_unique<ChangedImages>(std::move(shapes), how, options.seed, -2.0f, 2.0f);
  }
  throw ConfigError("data '{}': no such built-in set; did you mean {}?", name, nearest(name, kBuiltins));
}

std::unique_ptr<Dataset> open_image_set(const std::string& name, Split split, const DatasetOptions& options) {
  std::unique_ptr<ImageSource> source = open_images(name, split);
  std::string note;
  if (options.keep_end_apart && !source->has_own_split()) {
    const int64_t all = source->num_images();
    source = part_of(std::move(source), split, name);
    const int64_t held_out = split == Split::Eval ? source->num_images() : all - source->num_images();
    note = fmt::format(
        "{}: {} of {} images are kept for evaluation, the others trained on (with another set as data.eval, "
        "all)",
        name, held_out, all);
  }
  const auto classes = static_cast<int64_t>(source->classes().size());
  if (split == Split::Train && options.max_classes > 0 && classes != options.max_classes) {
    throw ConfigError("{}: has {} classes, but model.classes is {}; set it to {}", name, classes,
                      options.max_classes, classes);
  }
  return std::make_unique<ImageSet>(name, std::move(source), split,
                                    ImageSet::Shape{options.image_size, options.channels}, options.seed,
                                    options.images, split == Split::Train ? note : "");
}

std::unique_ptr<Dataset> open_path(std::string_view name, Split split, const DatasetOptions& options) {
  if (options.kind == SampleKind::Images) return open_image_set(std::string(name), split, options);
  const std::filesystem::path path(name);
  const bool remote = is_remote(std::string(name));
  if (!remote && !is_there(path)) {
    throw DataError(
        "{}: no such file or directory: expected builtin:stories, builtin:shapes, a text file or a "
        "directory written by tandem prepare",
        name);
  }
  const auto windows = [&](std::unique_ptr<TokenSource> tokens) {
    return std::make_unique<TokenWindows>(name, std::move(tokens), options.context,
                                          options.separate_documents);
  };
  if (remote || std::filesystem::is_directory(path)) {
    const ExpectedTokenizer expected{options.tokenizer, tokenizer_digest(options.tokenizer)};
    auto tokens =
        open_prepared(StoreRef(open_store(std::string(name))), split, options.verify_digests, &expected);
    if (options.separate_documents && !tokens->knows_documents()) {
      throw DataError(
          "{}: was prepared by a version that did not note where documents begin; prepare it again, or set "
          "data.documents to joined",
          name);
    }
    return windows(std::move(tokens));
  }
  if (options.tokenizer != kBytes) {
    auto text = open_tokenized(path, options.tokenizer,
                               options.keep_end_apart ? std::optional(split) : std::nullopt, options.context);
    return windows(std::move(text));
  }
  auto text = options.keep_end_apart ? open_part(path, split, options.context) : open_text(path);
  return windows(std::move(text));
}

}  // namespace

std::unique_ptr<Dataset> open_dataset(std::string_view name, Split split, const DatasetOptions& options) {
  auto set = name.starts_with(kPrefix) ? open_builtin(name, split, options) : open_path(name, split, options);
  const SampleSpec spec = set->spec();
  if (options.kind && spec.kind != *options.kind) {
    const bool tokens = spec.kind == SampleKind::Tokens;
    throw ConfigError("{}: holds {}, but the model takes {}; use {}", name, tokens ? "text" : "images",
                      tokens ? "images" : "text",
                      tokens ? "builtin:shapes" : "builtin:stories or a text file");
  }
  if (options.max_classes > 0 && spec.num_classes > options.max_classes) {
    const bool tokens = spec.kind == SampleKind::Tokens;
    throw ConfigError("{}: its {} go up to {}, but {} is {}; set it to at least {}", name,
                      tokens ? "tokens" : "labels", spec.num_classes - 1,
                      tokens ? "model.vocab" : "model.classes", options.max_classes, spec.num_classes);
  }
  return set;
}

}  // namespace tandem
