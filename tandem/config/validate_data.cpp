#include "tandem/config/validate_data.h"

#include <algorithm>

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

void check_kind(const ResolvedConfig& resolved, std::string_view key, const std::string& value) {
  const ModelConfig& model = resolved.config.model;
  const bool builtin = value.starts_with("builtin:");
  if (builtin && std::find(std::begin(kBuiltins), std::end(kBuiltins), value) == std::end(kBuiltins)) {
    throw ConfigError("{}: no such built-in set: {}; did you mean {}?", place_of(resolved, key),
                      in_quotes(value), nearest(value, kBuiltins));
  }
  // Files and prepared shards are text.
  const bool is_text = !builtin || value == kStories;
  if (is_text == model.is_language_model()) return;
  throw ConfigError("{}: {} = {} does not suit model.family {}, which takes {}; use {}",
                    place_of_first(resolved, {key, "model.family"}), key, shortened(value),
                    name_of(model.family), is_text ? "images" : "text",
                    is_text ? "builtin:shapes" : "builtin:stories, a text file or prepared shards");
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

}  // namespace

void validate_data(const ResolvedConfig& resolved) {
  const ModelConfig& model = resolved.config.model;
  const DataConfig& data = resolved.config.data;
  for (const DataSource& set : data.train.sets) check_kind(resolved, "data.train", set.path);
  for (const DataSource& set : data.eval.sets) check_kind(resolved, "data.eval", set.path);
  if (!model.is_language_model()) return check_shapes(resolved);
  // A model from elsewhere may be looked at without data; where there is some, its opening asks.
  if (data.tokenizer == "bytes" && model.vocab < 256 && model.from.empty()) {
    throw ConfigError("{}: the bytes tokenizer needs model.vocab of at least 256, found {}",
                      place_of_first(resolved, {"model.vocab", "data.tokenizer"}), model.vocab);
  }
}

}  // namespace tandem
