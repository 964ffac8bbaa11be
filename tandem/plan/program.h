// A rank's step as the simulator runs it: the commands of its executables with what each takes.
#pragma once

#include <memory>
#include <vector>

#include "tandem/compile/executable.h"
#include "tandem/compile/memory_plan.h"
#include "tandem/plan/command_cost.h"

namespace tandem::plan {

enum class Kind : uint8_t {
  Kernel,
  Host,        // the CPU's
  Copy,        // between memories
  Collective,  // of ranks that are all alike: they come to it at the same time
  World,       // of all ranks: it begins when the last comes
  Send,
  Recv
};

// What a kernel is, for sums.
enum class Sort : uint8_t { Product, Attention, Update, Other };

// A command of another stream that must have ended: the last one of that stream so far, or so many before it.
struct Wait {
  int stream = 0;
  int back = 0;
};

struct Item {
  Kind kind = Kind::Kernel;
  Axis axis = Axis::Data;
  int stream = 0;
  int peer = 0;          // of Send and Recv: a place on the pipeline axis
  double seconds = 0;    // of Send: of the transfer
  double bytes = 0;      // sent to other ranks
  bool between = false;  // nodes, as opposed to within one
  std::vector<Wait> waits = {};
  Sort sort = Sort::Other;
  const Command* command = nullptr;  // what it is, for traces
};

// Items from an executable, which must outlive them.
// `micro_batches`: of one run, more than one with a pipeline.
std::vector<Item> program_of(const Executable& executable, const Cluster& cluster, const MeshPosition& at,
                             int64_t micro_batches);

}  // namespace tandem::plan
