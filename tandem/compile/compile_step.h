// The compiler, from a model's forward graph to a CompiledStep: the passes (pass_list.h), then for each of
// the graphs they make a memory plan and a list of commands.
#pragma once

#include <functional>
#include <string_view>

#include "tandem/compile/executable.h"
#include "tandem/compile/passes/fuse.h"
#include "tandem/compile/passes/precision.h"
#include "tandem/config/config.h"

namespace tandem {

struct KernelChoice {
  std::string name;
  int64_t workspace_bytes = 0;
};
// Names the kernel for a node with these input types; the backend's registry decides. `on_host`: the node
// works on the host's memory, where the device has one of its own.
using ChooseKernel =
    std::function<KernelChoice(const Node& node, const std::vector<TensorType>& in, bool on_host)>;

// How ranks share the step, and which of them this is.
struct ParallelOptions {
  MeshPosition at;
  Strategy strategy = Strategy::Single;
  PipelineSchedule schedule = PipelineSchedule::OneFOneB;
  int chunks = 1;             // of the model on each pipeline rank
  int64_t micro_batches = 1;  // of this rank's data position in one step
  bool reduce_once = false;   // only in the last pass of a step: ddp, zero1
  DType reduce = DType::F32;  // in which gradients travel
  bool fixed_order = false;   // sums are those of any other number of data ranks, bit for bit
  bool offload_weights = false;
  bool offload_optimizer = false;
  int64_t offloaded_activations = 0;  // bytes of a micro-batch that may wait for backward on the host

  // Nothing is sent or copied: no two parameters have to lie together.
  bool stays_here() const { return at.shape.world() == 1 && !offload_weights && !offload_optimizer; }
};

struct CompileOptions {
  ParallelOptions parallel;
  PrecisionPolicy precision;
  OptimizerKind optimizer = OptimizerKind::AdamW;
  bool mixes_images = false;        // a sample has two labels (passes/loss/mix_images.h)
  bool separate_documents = false;  // that share a sequence (passes/documents.h)
  StateType state_type = StateType::Fp32;
  MuonScale muon_scale = MuonScale::MatchAdamW;
  bool norms_apart = false;  // of parameters' gradients, and not of all together alone
  double ema = 0;            // decay of the weights' moving average; 0 = none is kept
  bool shows_ema = false;    // evaluations can take it in the weights' place
  Recompute recompute;
  FuseOptions fuse;
  bool overwrite_gradients = false;  // the backend's kernels can, where a step is one pass
  int ranks_here = 1;                // that share this machine's memory
  int64_t device_memory = 0;         // of a device that has its own; 0 where it uses the machine's
  int64_t scratch = 0;               // what kernels with a choice should work in; 0 = as they are fastest
  // What the data loader and checkpoints of such a step ask for, at the end of the host arena; may be empty.
  std::function<int64_t(const CompiledStep& step)> host_bytes;
  std::vector<std::string> without;  // passes to leave out, of those that are optional
  ChooseKernel choose;
  std::function<void()> while_compiling;  // called every now and then; may throw, may be empty
  // Called after each pass, for every graph it made; may be empty.
  std::function<void(std::string_view pass, const Graph& graph, double ms)> observe;

  bool leaves_out(std::string_view pass) const;
  // Whether a pass may write gradients instead of adding to them: a step is one pass, or ranks reduce the
  // gradients of each into their parts.
  bool may_overwrite_gradients() const;
};

// Recomputation must have been chosen: `auto` weighs all ranks of a mesh, which the caller knows.
CompiledStep compile_step(const Graph& forward, const CompileOptions& options);

// Forward only (the executable `eval`): ending in the loss, for evaluation, or in the logits, for sampling.
enum class ForwardOutput { Loss, Logits };
CompiledStep compile_forward(const Graph& forward, const CompileOptions& options, ForwardOutput output);

// Generation with a cache of keys and values: `prefill` takes up to `prefill_rows` tokens, `decode` one and
// gives its logits, f32. Both read "tokens" and "position" (ops/cached_attention.cpp). Throws ConfigError for
// a model whose tokens see later ones.
struct GenerationOptions {
  int64_t prefill_rows = 1;
  int64_t positions = 0;  // that the cache has room for; 0: the context of the graph
};
CompiledStep compile_generation(const Graph& forward, const CompileOptions& options,
                                const GenerationOptions& generation);

}  // namespace tandem
