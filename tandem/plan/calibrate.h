// What this machine takes for the commands of configs' steps: an entry for the catalogue, which --cluster
// FILE reads.
//
// Every kind of rank of a config's mesh is compiled and its commands are run in order on the config's device,
// but for the collectives, so that kernels find the caches as they do in training. Several ranks run at once,
// as many as the cores have room for: they share memory's bandwidth in training, too.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tandem/models/model.h"
#include "tandem/plan/cluster.h"
#include "tandem/runtime/backend.h"
#include "tandem/train/compile_config.h"

namespace tandem::plan {

struct Calibration {
  std::map<std::string, double> kernels;  // s, by command_signature
  // s of a collective by kind and ranks, then by bytes: "all_reduce 4".
  std::map<std::string, std::map<int64_t, double>> collectives;
  double launch = 0;         // s between commands
  double step_overhead = 0;  // s of a step that no command takes
};

struct CalibrateOptions {
  BuildModel model = build_model;
  int repeats = 7;
  int most_repeats_s = 20;  // of a kind of rank: fewer repeats where a step is long
  std::function<void(const std::string& what)> progress = {};
};

void measure_kernels(const Config& config, const Backend& backend, const CalibrateOptions& options,
                     Calibration& into);

// Between threads of this process, which talk through the same windows of memory as processes do. `ranks` of
// a group.
void measure_collectives(int ranks, int64_t most_bytes, Calibration& into);

// Sizes of the groups in which a config's ranks talk, and the largest tensor that they send.
struct Talk {
  std::vector<int> ranks;
  int64_t most_bytes = 0;
};
Talk talk_of(const Config& config, const Backend& backend, const BuildModel& model);

}  // namespace tandem::plan
