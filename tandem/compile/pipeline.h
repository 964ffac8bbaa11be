// The compiler: THE list of passes, from a model's forward graph to a CompiledStep. Each pass is named,
// timed, verified and can be observed (`tandem plan --dump after:NAME`).
#pragma once

#include <functional>
#include <string_view>

#include "tandem/compile/executable.h"
#include "tandem/compile/fuse.h"
#include "tandem/compile/precision.h"
#include "tandem/config/config.h"

namespace tandem {

struct KernelChoice {
  std::string name;
  int64_t workspace_bytes = 0;
};
// Names the kernel for a node with these input types; the backend's registry decides.
using ChooseKernel = std::function<KernelChoice(const Node& node, const std::vector<TensorType>& in)>;

struct CompileOptions {
  PrecisionPolicy precision;
  OptimizerKind optimizer = OptimizerKind::AdamW;
  Recompute recompute;
  FuseOptions fuse;
  bool fuse_enabled = true;
  int64_t limit = 0;       // bytes for all arenas, which `auto` recompute must meet; 0 = none
  int64_t host_bytes = 0;  // of the host arena: what the data loader and checkpoints ask for
  ChooseKernel choose;
  std::function<void(std::string_view pass, const Graph& graph, double ms)> observe;  // may be empty
};

// Never throws for a plan over the limit: `auto` then returns its smallest, and the caller decides.
CompiledStep compile_step(const Graph& forward, const CompileOptions& options);

// Forward only (the executable `eval`): ending in the loss, for evaluation, or in the logits, for sampling.
enum class ForwardOutput { Loss, Logits };
CompiledStep compile_forward(const Graph& forward, const CompileOptions& options, ForwardOutput output);

inline constexpr std::string_view kPassNames[] = {"model",     "precision", "differentiate",
                                                  "recompute", "fuse",      "schedule"};

}  // namespace tandem
