// What a step is compiled to: a flat list of commands over slices of a few arenas. Plain data, printable and
// serialisable, with no pointer into the graph it came from. The runtime binds and runs it; the plan, the
// profile and the trace read the same object.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tandem/base/box.h"
#include "tandem/base/mesh.h"
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
  Cache,  // keys and values of the tokens so far, of a step that generates
  Communication,
  Workspace,
  Host
};
inline constexpr int kNumArenas = 9;
std::string_view arena_name(Arena arena);  // "weights"
using ArenaSizes = std::array<int64_t, kNumArenas>;
int64_t total_bytes(const ArenaSizes& sizes);
int64_t device_bytes(const ArenaSizes& sizes);  // all but the host's

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
  int64_t sent_bytes = 0;      // collectives: what this rank sends
};

// Whether the CPU runs it, whatever the device: its results are in the host arena.
bool runs_on_host(const Command& command);

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

// The fp32 master of a parameter that is stored in 16 bits is the persistent buffer "master:<name>": all of
// it, or the low halves that bf16 weights lack of it (base/split_float.h).
inline constexpr std::string_view kMasterPrefix = "master:";

// Part of a logical tensor, in a persistent buffer: `box` of it lies, row-major, from element `offset` on.
struct Piece {
  std::string tensor;
  Shape shape;  // of the whole tensor
  Box box;
  int64_t offset = 0;
  std::string init;   // "normal:0.02", "zeros", "ones"
  bool owned = true;  // this rank writes it into checkpoints; another rank holds the same otherwise
};

// A buffer that outlives an executable, and the tensors in it. Those among the activations do not outlive a
// step: gradients that every pass overwrites.
struct Persistent {
  std::string name;
  Slice slice;
  std::vector<Piece> pieces;
  // In checkpoints: not gradients, nor weights that are rounded from a master, nor the loss scaler.
  bool saved = true;
  // Of a master: the weights that are rounded from it, element by element; with sharded optimizer state, this
  // rank's part of them.
  std::optional<Slice> weights = std::nullopt;
  // Of an optimizer's state that is not kept in fp32 (optimizers/packed_state.h), and of frozen weights in 16
  // bits, which have no master; in checkpoints both are fp32.
  struct Packed {
    Kept kept = Kept::Plain;
    bool rounded = false;                // weights: numbers rounded as a master would be
    Slice scales = {};                   // of 8-bit states: one for each block
    Slice roots = {}, root_scales = {};  // of 8-bit shares: the codes of what they are shares of
  };
  std::optional<Packed> packed = std::nullopt;
};

struct ModelTensor {
  std::string name;
  Shape shape;
};

struct CompiledStep {
  Executable pass;            // forward and backward of one micro-batch, adding to the gradients
  Executable last_pass;       // of a step, where that one differs: it reduces what all have added; else empty
  Executable update;          // clip, optimizer
  Executable eval;            // forward only
  Executable gather;          // whole weights from every rank's part, where that part alone is restored
  Executable exchange;        // the weights' moving averages in their places, and back
  Executable prefill;         // of a step that generates: many tokens into the cache
  Executable decode;          // one token into the cache, and the logits that follow it
  int64_t positions = 0;      // that the cache has room for
  int64_t micro_batches = 1;  // of one run of `pass`: more than one with a pipeline
  MeshPosition position;      // the rank this was compiled for
  ArenaSizes sizes{};
  int64_t host_begin = 0;  // in the host arena, where the loader's and the checkpoints' part begins
  std::vector<Persistent> persistents;
  Recompute recompute;      // what was applied, with `auto` resolved
  int64_t model_flops = 0;  // of one micro-batch, recomputation not counted: what MFU is measured by
  int64_t num_params = 0;
  std::vector<std::string> metrics;  // the model's own, at the end of the update's statistics
  std::vector<ModelTensor> tensors;  // all that checkpoints of the model hold, over all ranks

  const Persistent* find(std::string_view name) const;
};

// Of the persistent buffers among the activations: their arena counts for them.
int64_t gradients_in_activations(const CompiledStep& step);

// How many matrices are multiplied in 8 bits.
int64_t matrices_in_fp8(const CompiledStep& step);

// What a rank sends over an axis in one run of an executable, and in a step of that many micro-batches.
int64_t sent_bytes(const Executable& executable, Axis axis);
int64_t sent_per_step(const CompiledStep& step, Axis axis, int64_t micro_batches);

nlohmann::json to_json(const Executable& executable);
nlohmann::json to_json(const CompiledStep& step);
std::string print(const Executable& executable);  // one command a line

}  // namespace tandem
