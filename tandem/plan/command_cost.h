// What a command of a compiled step takes on a GPU, from what it is: its shapes, FLOPs and bytes.
#pragma once

#include <string>

#include "tandem/compile/executable.h"
#include "tandem/plan/cluster.h"

namespace tandem::plan {

// Where a command's time is spent.
enum class Work { Device, Host, Copy, None };

struct CommandCost {
  double seconds = 0;
  Work work = Work::Device;
};

// Not of collectives. `ranks_on_node` share the host's memory bandwidth.
CommandCost command_cost(const Cluster& cluster, const Command& command, int ranks_on_node);

// m x k times k x n, `rate` FLOP/s at best: tiles are dealt to the multiprocessors in waves, the last of
// which may be nearly empty.
double matmul_seconds(const Gpu& gpu, double m, double n, double k, double rate);

// What makes two commands the same work: "cuda.matmul bf16[4096,768] bf16[768,768] ..."; of those with very
// many tensors, a digest of it.
std::string command_signature(const Command& command);

}  // namespace tandem::plan
