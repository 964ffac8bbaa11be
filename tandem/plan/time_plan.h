// A config's step on a cluster: compiled for every kind of rank, then run against the model of the hardware.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tandem/models/model.h"
#include "tandem/plan/cluster.h"
#include "tandem/plan/simulate.h"
#include "tandem/runtime/backend.h"
#include "tandem/train/compile_config.h"

namespace tandem::plan {

struct RankPlan {
  MeshPosition at;
  ArenaSizes memory{};
  RankTime time;
};

// Seconds of a rank's kernels by what they do, as if nothing were beside them.
struct KernelSums {
  double products = 0;
  double attention = 0;
  double update = 0;
  double other = 0;  // what moves bytes between them
};

struct TimePlan {
  Cluster cluster;
  MeshShape mesh;
  double step_s = 0;
  double tokens_per_s = 0;  // or images
  double mfu = 0;
  double model_flops = 0;  // of a step, recomputation not counted
  int64_t num_params = 0;
  Recompute recompute;
  std::vector<RankPlan> ranks;            // one of each pipeline stage
  size_t busiest = 0;                     // the rank that waits least: the step is as long as it takes
  KernelSums kernels;                     // of that rank
  int64_t memory_bytes = 0;               // of the largest rank, on its device
  int64_t host_bytes = 0;                 // of a node: its ranks' together
  int64_t state_bytes = 0;                // of a checkpoint, over all ranks
  double error_band = 0;                  // as a fraction
  std::vector<std::string> extrapolated;  // why nothing like it was ever compared with a measured run

  const TimeParts& parts() const { return ranks[busiest].time.parts; }
};

// The backend as it would be on the cluster's GPUs.
Backend backend_on(const Cluster& cluster, Backend backend);

struct PlanOptions {
  BuildModel model = build_model;
  std::function<void()> while_compiling = {};  // as of CompileOptions
  // May be empty.
  std::function<void(int stage, const Item& item, double begin, double end)> observe = {};
  int threads = 1;          // that compile
  bool alike_once = false;  // stages that are alike are compiled once: the first, which needs the most memory
  std::function<bool(const MeshPosition& at)> only = {};  // ranks to compile; empty: one of each kind
  int64_t stop_over = 0;  // bytes: where a rank needs more, the others are not compiled; 0: they are
  bool whole = false;     // every pass of a pipeline's step is compiled, however many (pipeline_slots.h)
};

// A step compiled for every kind of rank of its mesh, which can then be timed on any cluster of that GPU.
class CompiledRanks {
 public:
  // The config's mesh must have as many ranks as the cluster has GPUs (0: whatever the mesh has):
  // ConfigError.
  CompiledRanks(const Config& config, const Backend& backend, const Cluster& cluster,
                const PlanOptions& options);

  // Says nothing of whether it fits into memory: fits().
  TimePlan on(const Cluster& cluster) const;

  int64_t memory_bytes() const { return memory_bytes_; }  // of the largest rank, on its device
  int64_t host_bytes() const { return host_bytes_; }      // of a node: its ranks' together
  int64_t passes_compiled() const { return passes_compiled_; }

 private:
  struct Timed {
    Simulation simulation;
    KernelSums kernels;  // of the rank that waits least
    size_t busiest = 0;
  };

  void compile(const Backend& backend, const Cluster& cluster);
  Timed simulate_passes(const Cluster& cluster, int64_t passes) const;
  Timed simulate_all(const Cluster& cluster) const;
  std::set<std::string> unmeasured(const Cluster& cluster) const;

  Config config_;
  PlanOptions options_;
  MeshShape mesh_;
  int64_t passes_compiled_ = 1;      // of those of a pipeline's step
  std::vector<CompiledStep> steps_;  // of the stages that were compiled
  std::vector<size_t> step_of_;      // each stage's among them
  int64_t memory_bytes_ = 0;
  int64_t host_bytes_ = 0;
};

// Of a node's memory, what ranks may plan with: the system and the programs have the rest.
inline constexpr double kHostShare = 0.94;
bool fits_host(const Cluster& cluster, int64_t host_bytes);
int64_t node_bytes(const TimePlan& plan);  // that its ranks take of the machine's own memory
bool fits_device(const TimePlan& plan);
bool fits(const TimePlan& plan);  // on the devices and beside them

}  // namespace tandem::plan
