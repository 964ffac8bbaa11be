// Runs the programs of ranks that are processes of one machine and share its cores. Ranks may outnumber the
// cores, and collectives are work of theirs, too, on threads beside the computation: so every rank of the
// mesh is run, and at each moment all threads that have work get an equal share of the cores. What an item
// takes is CPU time.
#pragma once

#include <span>

#include "tandem/base/mesh.h"
#include "tandem/plan/simulate.h"

namespace tandem::plan {

struct CoreOptions {
  int cores = 1;
  int threads = 1;           // of each rank's computation
  double launch = 0;         // s before each item of the computation
  double step_overhead = 0;  // s of the host at the end
  // Called for each item of the ranks that stand for their stage; may be empty.
  std::function<void(int stage, const Item& item, double begin, double end)> observe = {};
};

// programs[i] is that of pipeline stage i; the ranks of the other axes run the same. The result has one rank
// of each stage.
Simulation simulate_on_cores(std::span<const Program> programs, const MeshShape& mesh,
                             const CoreOptions& options);

}  // namespace tandem::plan
