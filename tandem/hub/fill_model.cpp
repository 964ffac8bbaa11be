#include "tandem/hub/fill_model.h"

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/config/keys.h"
#include "tandem/config/place.h"
#include "tandem/hub/config_json.h"
#include "tandem/text/tokenizer.h"

namespace tandem::hub {
namespace {

constexpr std::string_view kOrigin = "derived from model.from";

bool is_filled(const Key& key) {
  return key.path.starts_with("model.") && key.path != "model.from" && key.path != "model.init" &&
         key.path != "model.dropout";
}

bool all_given(const ResolvedConfig& resolved) {
  for (const Key& key : keys()) {
    if (is_filled(key) && applies(key, resolved.config.model.family) && !was_given(resolved, key.path))
      return false;
  }
  return true;
}

void check_context(ResolvedConfig& resolved, const HubConfig& hub) {
  const int64_t context = resolved.config.model.context;
  if (context <= hub.positions) return;
  if (hub.model.has(kWeightedPositions)) {
    throw ConfigError("{}: {} has weights for {} positions, found {}; use at most that many",
                      place_of(resolved, "model.context"), resolved.config.model.from, hub.positions,
                      context);
  }
  resolved.notes.push_back(fmt::format("{}: is {}, but {} was made for {} positions",
                                       place_of(resolved, "model.context"), context,
                                       resolved.config.model.from, hub.positions));
}

// Text is read with the directory's own tokenizer; the sets that are built in are bytes.
void fill_tokenizer(ResolvedConfig& resolved, const std::filesystem::path& directory) {
  if (was_given(resolved, "data.tokenizer") || !was_given(resolved, "data.train")) return;
  if (!has_tokenizer_file(directory)) return;
  for (const DataSource& set : resolved.config.data.train.sets) {
    if (set.path.starts_with("builtin:")) return;
  }
  resolved.config.data.tokenizer = directory.string();
  resolved.origins["data.tokenizer"] = kOrigin;
}

}  // namespace

void fill_model(ResolvedConfig& resolved, const std::filesystem::path& kept) {
  std::filesystem::path directory = resolved.config.model.from;
  if (!is_there(directory / "config.json")) {
    if (is_there(kept / "config.json")) {
      directory = kept;
    } else if (all_given(resolved)) {
      return;
    } else if (!is_there(directory)) {
      throw ConfigError("{}: {}: no such directory; expected a Hugging Face model's, with config.json",
                        place_of(resolved, "model.from"), directory.string());
    }
  }
  const HubConfig hub = read_config_json(directory);
  Config given = resolved.config;
  ModelConfig& model = resolved.config.model;
  model = hub.model;
  model.from = given.model.from;
  model.init = given.model.init;
  model.dropout = given.model.dropout;
  for (const Key& key : keys()) {
    if (!is_filled(key) || !applies(key, model.family)) continue;
    if (!was_given(resolved, key.path)) {
      resolved.origins[std::string(key.path)] = kOrigin;
      continue;
    }
    const nlohmann::json said = key.read(given), found = key.read(resolved.config);
    if (key.path == "model.context") {
      model.context = given.model.context;
      check_context(resolved, hub);
    } else if (said != found && said != 0) {  // 0 asks for the derived value
      throw ConfigError("{}: is {}, but {} has {}; leave it out", place_of(resolved, key.path), said.dump(),
                        (directory / "config.json").string(), found.dump());
    }
  }
  fill_tokenizer(resolved, directory);
  resolved.notes.insert(resolved.notes.end(), hub.notes.begin(), hub.notes.end());
}

}  // namespace tandem::hub
