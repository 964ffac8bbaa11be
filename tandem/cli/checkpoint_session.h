// The weights of a checkpoint in a session that can run the model forward: for evaluate and sample.
#pragma once

#include <memory>
#include <string>

#include "tandem/checkpoint/manifest.h"
#include "tandem/cli/command.h"
#include "tandem/runtime/session.h"

namespace tandem::cli {

// Takes a checkpoint's directory, or a run directory, whose newest good checkpoint is meant. Newer ones that
// are bad are named and skipped, or are an error.
enum class BadOnes { Skip, Fail };
Manifest find_checkpoint(const std::string& path, BadOnes bad_ones = BadOnes::Skip);

// The same with the moving averages of the weights (train.ema) in their places; frozen ones have none, and
// stay. Throws DataError where there are none at all.
Manifest averaged(Manifest manifest);

// The config that the checkpoint was made with, with changes.
Config checkpoint_config(const Manifest& manifest, const std::vector<std::string>& sets);

// CHECKPOINT
void add_checkpoint_to(CLI::App& command, std::string& path);

// --ema
void add_ema_to(CLI::App& command, bool& ema);

// CHECKPOINT [--set key.path=value]... [--ema]: what evaluate and sample begin with.
struct CheckpointFlags {
  std::string path;
  std::vector<std::string> sets;
  bool ema = false;

  void add_to(CLI::App& command);
};

}  // namespace tandem::cli
