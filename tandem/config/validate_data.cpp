#include "tandem/config/validate_data.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tandem/base/error.h"
#include "tandem/base/nearest.h"
#include "tandem/config/enum_names.h"
#include "tandem/config/place.h"
#include "tandem/config/values.h"

namespace tandem {
namespace {

constexpr std::string_view kStories = "builtin:stories";
constexpr std::string_view kShapes = "builtin:shapes";
constexpr std::string_view kBuiltins[] = {kStories, kShapes};

// Of what is there: a file that is not CIFAR's, or a directory that `tandem prepare` made of text. What is
// not there, or is of some other kind, its opening tells.
bool holds_text(const std::string& value) {
  std::error_code ignored;
  const std::filesystem::path path(value);
  if (std::filesystem::is_regular_file(path, ignored)) return path.extension() != ".bin";
  std::ifstream index(path / "index.json", std::ios::binary);
  std::string beginning(512, 0);
  index.read(beginning.data(), static_cast<std::streamsize>(beginning.size()));
  return beginning.find("tandem-tokens") != std::string::npos;
}

void check_kind(const ResolvedConfig& resolved, std::string_view key, const std::string& value) {
  const ModelConfig& model = resolved.config.model;
  const bool builtin = value.starts_with("builtin:");
  if (builtin && std::find(std::begin(kBuiltins), std::end(kBuiltins), value) == std::end(kBuiltins)) {
    throw ConfigError("{}: no such built-in set: {}; did you mean {}?", place_of(resolved, key),
                      in_quotes(value), nearest(value, kBuiltins));
  }
  const bool is_text = builtin ? value == kStories : model.is_language_model() || holds_text(value);
  if (is_text == model.is_language_model()) return;
  throw ConfigError(
      "{}: {} = {} does not suit model.family {}, which takes {}; use {}",
      place_of_first(resolved, {key, "model.family"}), key, shortened(value), name_of(model.family),
      is_text ? "images" : "text",
      is_text ? "builtin:shapes or a folder of images" : "builtin:stories, a text file or prepared shards");
}

// What builtin:shapes gives, against what the model expects.
void check_shapes(const ResolvedConfig& resolved) {
  const ModelConfig& model = resolved.config.model;
  constexpr int64_t kChannels = 3, kMinSize = 16, kClasses = 10;
  if (model.channels != kChannels) {
    throw ConfigError("{}: the images of builtin:shapes have {} channels, found model.channels = {}; use {}",
                      place_of_first(resolved, {"model.channels"}), kChannels, model.channels, kChannels);
  }
  if (model.image_size < kMinSize) {
    throw ConfigError("{}: builtin:shapes needs model.image_size of at least {}, found {}",
                      place_of_first(resolved, {"model.image_size"}), kMinSize, model.image_size);
  }
  if (model.classes < kClasses) {
    throw ConfigError("{}: builtin:shapes needs model.classes of at least {}, found {}",
                      place_of_first(resolved, {"model.classes"}), kClasses, model.classes);
  }
}

// What images have, against what the model expects.
void check_image_data(const ResolvedConfig& resolved) {
  const DataConfig& data = resolved.config.data;
  bool shapes = false;
  for (const DataSources* sources : {&data.train, &data.eval}) {
    for (const DataSource& set : sources->sets) shapes |= set.path == kShapes;
  }
  if (shapes) return check_shapes(resolved);
  if (const int64_t channels = resolved.config.model.channels; channels != 1 && channels != 3) {
    throw ConfigError("{}: images from files have 3 channels, or 1 as grey ones, found model.channels = {}",
                      place_of_first(resolved, {"model.channels"}), channels);
  }
}

}  // namespace

void validate_data(const ResolvedConfig& resolved) {
  const ModelConfig& model = resolved.config.model;
  const DataConfig& data = resolved.config.data;
  for (const DataSource& set : data.train.sets) check_kind(resolved, "data.train", set.path);
  for (const DataSource& set : data.eval.sets) check_kind(resolved, "data.eval", set.path);
  if (!model.is_language_model()) return check_image_data(resolved);
  // A model from elsewhere may be looked at without data; where there is some, its opening asks.
  if (data.tokenizer == "bytes" && model.vocab < 256 && model.from.empty()) {
    throw ConfigError("{}: the bytes tokenizer needs model.vocab of at least 256, found {}",
                      place_of_first(resolved, {"model.vocab", "data.tokenizer"}), model.vocab);
  }
}

}  // namespace tandem
