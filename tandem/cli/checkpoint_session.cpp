#include "tandem/cli/checkpoint_session.h"

#include <filesystem>

#include "tandem/base/file.h"
#include "tandem/checkpoint/reader.h"
#include "tandem/compile/update_graph.h"
#include "tandem/config/load.h"
#include "tandem/config/print.h"
#include "tandem/train/config_changes.h"

namespace tandem::cli {

namespace fs = std::filesystem;

Manifest find_checkpoint(const std::string& path, BadOnes bad_ones) {
  if (is_remote(path)) return read_manifest(path);
  if (!is_there(path)) throw DataError("{}: no such checkpoint or run directory", path);
  const fs::path folder = fs::path(path) / "checkpoints";
  if (!fs::is_directory(folder)) return read_manifest(path);
  Latest latest = find_latest(folder, Check::Digests);
  if (bad_ones == BadOnes::Fail && !latest.skipped.empty())
    throw DataError("{}", latest.skipped.front().reason);
  for (const Skipped& bad : latest.skipped) {
    std::fprintf(stderr, "warning: skipped a bad checkpoint: %s\n", bad.reason.c_str());
  }
  if (!latest.manifest) throw DataError("{}: holds no good checkpoint", folder.string());
  return std::move(*latest.manifest);
}

Manifest averaged(Manifest manifest) {
  const std::string prefix = fmt::format("{}:", kEmaState);
  std::vector<TensorEntry> tensors;
  bool any = false;
  for (TensorEntry& tensor : manifest.tensors) {
    if (tensor.name.starts_with(prefix)) {
      any = true;
      tensor.name.erase(0, prefix.size());
    } else if (manifest.find(prefix + tensor.name) != nullptr) {
      continue;
    }
    tensors.push_back(tensor);
  }
  if (!any)
    throw DataError("{}: has no averages of its weights: it was trained without train.ema; leave out --ema",
                    manifest.directory.string());
  manifest.tensors = std::move(tensors);
  return manifest;
}

Config checkpoint_config(const Manifest& manifest, const std::vector<std::string>& sets) {
  const std::string source = manifest.directory.string();
  Config config = config_from_json(manifest.meta.config, source);
  // 8-bit products are for training: a forward alone is done in the 16 bits that stand beside them, anywhere.
  if (config.precision == Precision::Fp8) config.precision = Precision::Bf16;
  if (sets.empty()) return config;
  config = parse_config(to_yaml(config), source, overrides_of(sets)).config;
  require_same_function(manifest, config);
  return config;
}

void add_checkpoint_to(CLI::App& command, std::string& path) {
  command.add_option("CHECKPOINT", path, "a checkpoint, or a run directory (its newest)")->required();
}

void add_ema_to(CLI::App& command, bool& ema) {
  command.add_flag("--ema", ema, "the moving average of the weights (train.ema) instead of the last ones");
}

void CheckpointFlags::add_to(CLI::App& command) {
  add_checkpoint_to(command, path);
  add_ema_to(command, ema);
  add_sets_to(command, sets, "change one key of the checkpoint's config: --set device=cpu (may be repeated)");
}

}  // namespace tandem::cli
