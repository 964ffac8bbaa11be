// What a search may choose, within what the user fixed: a key that the config or --set gives stays.
#pragma once

#include <string>
#include <vector>

#include "tandem/base/mesh.h"
#include "tandem/config/load.h"
#include "tandem/plan/cluster.h"

namespace tandem::plan {

// One way to run a config's step.
struct Candidate {
  MeshShape mesh;
  Strategy strategy = Strategy::Single;
  PipelineSchedule schedule = PipelineSchedule::OneFOneB;
  int64_t chunks = 1;
  int64_t micro_batch = 1;
  GradientSync sync = GradientSync::Pass;
  Precision precision = Precision::Bf16;
  Recompute recompute;
  std::vector<OffloadKind> offload;

  int64_t passes(int64_t batch) const { return batch / (micro_batch * mesh.data); }
};

// The config with its choices made.
Config with(Config config, const Candidate& candidate);

// Candidates that differ only in what trades memory for time have one family: the mesh, its strategy, the
// schedule and the precision.
std::string family_of(const Candidate& candidate);

bool is_fixed(const ResolvedConfig& given, std::string_view key);

// All that divide as they have to, on `cluster.gpus` GPUs. gpipe is never among them unless it is fixed: 1f1b
// does the same in the same time with less memory. Tensor axes stay within a node.
std::vector<Candidate> search_space(const ResolvedConfig& given, const Cluster& cluster, int num_blocks);

}  // namespace tandem::plan
