// A run from the moment that it may train: its step compiled and in memory, the state it begins with, its
// directory and its journal.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tandem/checkpoint/reader.h"
#include "tandem/train/device_figures.h"
#include "tandem/train/journal.h"
#include "tandem/train/run_directory.h"
#include "tandem/train/run_session.h"
#include "tandem/train/trainer.h"
#include "tandem/train/world.h"

namespace tandem {

struct OpenRun {
  const Config& config;
  const Backend& backend;
  const TrainOptions& options;
  const World& world;
  DeviceFigures figures;  // of rank 0
  std::unique_ptr<RunSession> steps;
  std::string data_fingerprint;
  std::string hardware;  // the rank's GPU, where it has one, and its machine
  RunLock lock;          // of rank 0
  Latest restored;       // the checkpoint that the state was read from, if any
  RunDirectory directory;
  Journal journal;

  // Whether that checkpoint is of this very directory, and not of another run's.
  bool goes_on_here() const;
  bool is_from_memory() const;  // no checkpoint has that state yet (checkpoint.memory)
};

// Before anything is compiled: whether there may be a run, or is one to go on with, and with this config.
// Throws ConfigError where not. Calls `while_waiting`, which may throw, where that takes a while.
void check_start(const Config& config, const TrainOptions& options, const World& world,
                 const std::function<void()>& while_waiting);

// All ranks call it together. What cannot be gone on from throws, and leaves everything in the run's
// directory as it was. Calls `while_compiling` every now and then (RunSession).
OpenRun open_run(const Config& config, const Backend& backend, const TrainOptions& options,
                 const World& world, const std::function<void()>& while_compiling);

}  // namespace tandem
