// What a step is compiled to: a flat list of commands over slices of a few arenas. Plain data, printable and
// serialisable, with no pointer into the graph it came from. The runtime binds and runs it; the plan, the
// profile and the trace read the same object.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tandem/config/config.h"
#include "tandem/ir/graph.h"

namespace tandem {

// Memory by what it holds. The runtime allocates each arena once, with exactly the planned size.
enum class Arena : uint8_t {
  Weights,
  Master,
  Gradients,
  Optimizer,
  Activations,
  Communication,
  Workspace,
  Host
};
inline constexpr int kNumArenas = 8;
std::string_view arena_name(Arena arena);  // "weights"
using ArenaSizes = std::array<int64_t, kNumArenas>;
int64_t total_bytes(const ArenaSizes& sizes);

struct Slice {
  Arena arena = Arena::Activations;
  int64_t offset = 0;
  TensorType type;
};

struct Command {
  std::string kernel;  // registry name
  Op op = Op::Add;
  std::vector<Slice> in;
  std::vector<Slice> out;
  Attrs attrs;
  int64_t workspace_bytes = 0;  // at the start of the workspace arena
  int32_t block = kNoBlock;
  Phase phase = Phase::Forward;
  int32_t stream = 0;
  std::vector<int32_t> waits;  // commands on other streams that must have finished
  int64_t flops = 0;           // arithmetic this command does
  int64_t bytes = 0;           // the fewest bytes it must move
};

struct Binding {
  std::string name;
  Slice slice;
};

struct Executable {
  std::string name;
  std::vector<Command> commands;
  std::vector<Binding> inputs;      // written before a run
  std::vector<Binding> outputs;     // valid after it
  std::vector<int64_t> live_bytes;  // activations alive while each command runs
};

// The fp32 copy of a parameter that is stored in 16 bits is the persistent buffer "master:<name>".
inline constexpr std::string_view kMasterPrefix = "master:";

// A buffer that outlives a step, and how it starts.
struct Persistent {
  std::string name;
  Slice slice;
  std::string init;  // "normal:0.02", "zeros", "ones"
};

struct CompiledStep {
  Executable pass;    // forward and backward of one micro-batch, adding to the gradients
  Executable update;  // clip, optimizer
  Executable eval;    // forward only
  ArenaSizes sizes{};
  std::vector<Persistent> persistents;
  Recompute recompute;      // what was applied, with `auto` resolved
  int64_t model_flops = 0;  // of one micro-batch, recomputation not counted: what MFU is measured by
  int64_t num_params = 0;

  const Persistent* find(std::string_view name) const;
};

nlohmann::json to_json(const Executable& executable);
nlohmann::json to_json(const CompiledStep& step);
std::string print(const Executable& executable);  // one command a line

}  // namespace tandem
