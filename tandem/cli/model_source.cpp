#include "tandem/cli/model_source.h"

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tandem/base/file.h"
#include "tandem/hub/config_json.h"
#include "tandem/hub/fill_model.h"
#include "tandem/hub/kept_files.h"
#include "tandem/text/tokenizer.h"
#include "tandem/train/hub_start.h"
#include "tandem/train/model_state.h"

namespace tandem::cli {

namespace fs = std::filesystem;

bool is_hub_directory(const std::string& path) {
  const fs::path directory = path;
  return is_there(directory / "config.json") && !is_there(directory / "checkpoints") &&
         !is_there(directory / kManifestFile);
}

Config hub_config(const std::string& directory, const std::vector<std::string>& sets) {
  const std::string yaml = fmt::format("model: {{from: {}}}\n", nlohmann::json(directory).dump());
  const ResolvedConfig resolved = parse_config(yaml, directory, overrides_of(sets), 1,
                                               [](ResolvedConfig& filled) { hub::fill_model(filled, {}); });
  for (const std::string& note : resolved.notes) std::fprintf(stderr, "note: %s\n", note.c_str());
  return resolved.config;
}

ModelSource::ModelSource(const CheckpointFlags& flags) {
  if (is_hub_directory(flags.path)) {
    if (flags.ema) throw ConfigError("--ema: {} is no checkpoint, and has one set of weights", flags.path);
    config = hub_config(flags.path, flags.sets);
  } else {
    manifest_ = find_checkpoint(flags.path);
    if (flags.ema) manifest_ = averaged(std::move(*manifest_));
    config = checkpoint_config(*manifest_, flags.sets);
  }
}

std::string ModelSource::tokenizer() const {
  const std::string& named = config.data.tokenizer;
  const fs::path kept = hub_files();
  // Bytes are what was not chosen where no text was read yet; a file may have been removed since.
  const bool use_kept = named == kBytes ? step() == 0 : !is_there(named);
  return use_kept && has_tokenizer_file(kept) ? kept.string() : named;
}

// The directory itself, or what a run keeps of it.
fs::path ModelSource::hub_files() const {
  return manifest_ ? hub::kept_folder_of(manifest_->directory) : fs::path(config.model.from);
}

int64_t ModelSource::positions() const {
  const fs::path files = hub_files();
  return is_there(files / "config.json") ? hub::read_config_json(files).positions : config.model.context;
}

void ModelSource::load(Session& session, const Config& run) const {
  if (manifest_) {
    load_weights(session, *manifest_);
  } else {
    load_weights(session, open_hub_weights(run));
  }
}

}  // namespace tandem::cli
