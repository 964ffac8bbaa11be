// Weights to run forward, from a checkpoint, a run, or a Hugging Face directory as it stands.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/checkpoint/manifest.h"
#include "tandem/cli/checkpoint_session.h"
#include "tandem/config/config.h"
#include "tandem/hub/hub_weights.h"
#include "tandem/runtime/session.h"

namespace tandem::cli {

// config.json, and neither a run nor a checkpoint.
bool is_hub_directory(const std::string& path);

// The config of a run that would begin with the directory. Notes go to stderr.
Config hub_config(const std::string& directory, const std::vector<std::string>& sets);

class ModelSource {
 public:
  // As find_checkpoint, checkpoint_config or hub_config.
  explicit ModelSource(const CheckpointFlags& flags);

  Config config;
  // That of the model's texts: what it was trained with, or what came with it.
  std::string tokenizer() const;
  // That the model was made for, where a Hugging Face directory says it; else those it was trained with.
  int64_t positions() const;
  int64_t step() const { return manifest_ ? manifest_->meta.step : 0; }
  // Into a forward-only session of `run`, which is this config or one with another context.
  void load(Session& session, const Config& run) const;

 private:
  std::filesystem::path hub_files() const;

  std::optional<Manifest> manifest_;
};

}  // namespace tandem::cli
