// The machines that a plan is for: so many equal GPUs in equal nodes, and how they are joined.
#pragma once

#include <map>
#include <string>

#include "tandem/plan/catalogue.h"
#include "tandem/plan/collective_curves.h"

namespace tandem::plan {

struct Cluster {
  std::string name;  // "p5.48xlarge"
  Gpu gpu;
  int gpus = 1;  // all of them
  int gpus_per_node = 8;
  double network = 0;                    // bytes/s of a node; 0: nodes are not joined
  double chunking = 0.8;                 // between nodes (collective_cost.h)
  double hop = 38e-6;                    // s that each node adds to a collective
  double host_bandwidth = 200e9;         // bytes/s of a node's memory
  double host_memory = 0;                // bytes of a node; 0: not known
  int cores = 0;                         // of a node whose ranks compute on them (gpu: cpu)
  double disk_write = 0, disk_read = 0;  // bytes/s, measured; 0: not known
  // What the software does with the hardware. Tandem's own by default; other programs' runs are compared
  // with factors of theirs (bench/validate_plan.py).
  double compute_factor = 1;    // time of a kernel against the model's
  double attention_factor = 1;  // on top, of attention
  double pointwise_factor =
      1;             // on top, of what moves bytes between products: programs that fuse less move more
  double issue = 0;  // s of the CPU for each item: programs without CUDA graphs cannot run ahead of it
  bool reduces_once = false;  // gradients, after the last pass of a pipeline; Tandem does after each
  double launch = 1.2e-6;     // s between kernels
  double step_overhead = 0;   // s of the host that nothing hides, each step
  bool fused_attention = true;
  CollectiveCurves curves;                // of collectives that were measured on such machines
  std::map<std::string, double> kernels;  // measured, s, by command_signature (tandem calibrate)

  bool is_cpu() const { return gpu.arch == "cpu"; }  // `gpus` are ranks that share `cores`
  int nodes() const { return (gpus + gpus_per_node - 1) / gpus_per_node; }
};

// NAME[:COUNT] of the catalogue, an instance type or a GPU, or a YAML file; COUNT is GPUs, 0 if it is not
// given. Throws ConfigError naming the nearest name.
Cluster find_cluster(const std::string& text);

}  // namespace tandem::plan
