#include "tandem/compile/compile_step.h"

#include <algorithm>
#include <map>

#include "tandem/base/error.h"
#include "tandem/compile/cost.h"
#include "tandem/compile/factored_update.h"
#include "tandem/compile/lower.h"
#include "tandem/compile/memory_plan.h"
#include "tandem/compile/pass_list.h"
#include "tandem/compile/passes/data_axis.h"
#include "tandem/compile/passes/fp8.h"
#include "tandem/compile/passes/loss/loss_scaler.h"
#include "tandem/compile/passes/metrics.h"
#include "tandem/compile/passes/overwrite_gradients.h"
#include "tandem/compile/passes/recompute.h"
#include "tandem/compile/trained.h"
#include "tandem/compile/update_graph.h"
#include "tandem/optimizers/packed_state.h"

namespace tandem {
namespace {

void add_executable(CompiledStep& step, Executable& slot, std::string name, const Graph& graph,
                    PersistentLayout& layout, const CompileOptions& options) {
  if (options.while_compiling) options.while_compiling();
  const MemoryPlan plan = plan_memory(graph, layout);
  slot = lower(std::move(name), graph, plan, options.choose);
  auto& workspace = step.sizes[static_cast<size_t>(Arena::Workspace)];
  for (const Command& command : slot.commands) workspace = std::max(workspace, command.workspace_bytes);
  for (Arena arena : {Arena::Activations, Arena::Communication}) {
    const auto i = static_cast<size_t>(arena);
    step.sizes[i] = std::max(step.sizes[i], plan.sizes[i]);
  }
  const auto host = static_cast<size_t>(Arena::Host);
  step.host_begin = std::max(step.host_begin, layout.sizes()[host] + plan.sizes[host]);
}

// By name. Views of the names, which stay as they are.
std::map<std::string_view, Persistent*> by_name(std::vector<Persistent>& persistents) {
  std::map<std::string_view, Persistent*> found;
  for (Persistent& item : persistents) found[item.name] = &item;
  return found;
}

// A state that is not kept in fp32, and where its scales are: they are saved with it, as numbers.
void set_packed(const std::map<std::string_view, Persistent*>& items, std::span<const StateTensor> states,
                const StateTensor& state, const Unit& unit, StateType type) {
  const auto codes = items.find(fmt::format("{}:{}", state.name, unit.name));
  if (type == StateType::Fp32 || codes == items.end()) return;
  const auto find = [&](const std::string& name) { return items.at(fmt::format("{}:{}", name, unit.name)); };
  Persistent::Packed packed{.kept = state.kept};
  if (type == StateType::Int8) {
    Persistent* const scales = find(scale_name(state.name));
    packed.scales = scales->slice;
    scales->saved = false;
    if (state.kept == Kept::Share) {
      const StateTensor& root = states[static_cast<size_t>(root_state(states))];
      packed.roots = find(std::string(root.name))->slice;
      packed.root_scales = find(scale_name(root.name))->slice;
    }
  }
  codes->second->packed = packed;
}

// Which tensors lie in the buffers of units, and which of them this rank answers for.
void set_pieces(CompiledStep& step, const UnitLayout& layout, const CompileOptions& options) {
  const MeshPosition& at = options.parallel.at;
  for (Persistent& item : step.persistents) {
    for (Piece& piece : item.pieces) {
      // All ranks have the same ranges of 8-bit numbers, the stages of a pipeline too.
      const bool on_all = item.name == kFp8Activations || item.name == kFp8Gradients;
      piece.owned = at.data == 0 && at.tensor == 0 && (!on_all || at.pipeline == 0);
    }
  }
  const Sharding sharding = sharding_of(options.parallel.strategy);
  const auto items = by_name(step.persistents);
  for (const Unit& unit : layout.units()) {
    const Range whole = layout.whole(unit), own = layout.own(unit);
    const auto set = [&](std::string_view kind, Range range, std::string_view prefix, bool starts) {
      const auto it = items.find(fmt::format("{}:{}", kind, unit.name));
      if (it != items.end()) it->second->pieces = logical_pieces(layout, unit, range, prefix, starts);
    };
    const Range optimizer = sharding.optimizer ? own : whole;
    set("weights", sharding.weights ? own : whole, "", true);
    set("master", optimizer, "", true);
    if (unit.frozen) {
      const auto weights = items.find(fmt::format("weights:{}", unit.name));
      if (weights != items.end() && is_half(layout.storage())) weights->second->packed = {.rounded = true};
      continue;
    }
    set(kEmaState, optimizer, fmt::format("{}:", kEmaState), false);
    const OptimizerKind rule = rule_for(options.optimizer, holds_block_matrices(unit));
    for (const StateTensor& state : optimizer_entry(rule).states) {
      const std::string prefix = fmt::format("{}:", state.name);
      const auto factored = items.find(prefix + unit.name);
      if (optimizer_entry(rule).factored && factored != items.end())
        factored->second->pieces = factored_pieces(layout, unit, prefix);
      if (optimizer_entry(rule).factored) continue;
      set(state.name, optimizer, fmt::format("{}:", state.name), false);
      set_packed(items, optimizer_entry(rule).states, state, unit, options.state_type);
    }
  }
}

// Which weights are their masters rounded, and what of it all is saved.
void set_masters(CompiledStep& step) {
  const auto items = by_name(step.persistents);
  for (Persistent& item : step.persistents) {
    if (item.slice.arena == Arena::Gradients || item.slice.arena == Arena::Activations) item.saved = false;
    if (item.name == kLossScaler) item.saved = false;  // manifests have it
    if (!item.name.starts_with(kMasterPrefix)) continue;
    const std::string unit = item.name.substr(kMasterPrefix.size());
    const auto found = items.find("weights:" + unit);
    TANDEM_CHECK(found != items.end(), "{} has no weights", item.name);
    Persistent* const weights = found->second;
    weights->saved = false;
    // They are of one size, or the master is this rank's part.
    const Shape& part = item.slice.type.shape;
    item.weights = {weights->slice.arena, weights->slice.offset, {weights->slice.type.dtype, part}};
    if (weights->slice.type.shape.elems() != part.elems())
      item.weights->offset += step.position.data * item.weights->type.bytes();
  }
}

// Every tensor that a checkpoint of this model holds, whichever ranks hold it.
std::vector<ModelTensor> model_tensors(const Graph& forward, const CompileOptions& options) {
  std::vector<ModelTensor> tensors;
  for (const Node& node : forward.nodes()) {
    if (node.op != Op::Param && node.op != Op::State) continue;
    const Shape& shape = node.outputs[0].shape;
    tensors.push_back({node.name, shape});
    if (node.op != Op::Param || is_frozen(node)) continue;
    const OptimizerKind rule = rule_for(options.optimizer, node.block != kNoBlock && shape.rank() > 1);
    for (const StateTensor& state : optimizer_entry(rule).states)
      tensors.push_back({fmt::format("{}:{}", state.name, node.name),
                         optimizer_entry(rule).factored ? Shape({factors_of(shape).size()}) : shape});
    if (options.ema != 0) tensors.push_back({fmt::format("{}:{}", kEmaState, node.name), shape});
  }
  return tensors;
}

void add_host(CompiledStep& step, const CompileOptions& options) {
  step.sizes[static_cast<size_t>(Arena::Host)] =
      step.host_begin + (options.host_bytes ? options.host_bytes(step) : 0);
}

int64_t count_params(const Graph& graph) {
  int64_t count = 0;
  for (const Node& node : graph.nodes()) count += node.op == Op::Param ? node.outputs[0].shape.elems() : 0;
  return count;
}

CompiledStep assemble(const StepGraphs& graphs, const CompileOptions& options) {
  CompiledStep step;
  PersistentLayout layout;
  for (const Graph* graph : {&graphs.pass, &graphs.last_pass, &graphs.update, &graphs.eval})
    layout.add(*graph);
  step.position = options.parallel.at;
  step.sizes = layout.sizes();
  add_executable(step, step.pass, "pass", graphs.pass, layout, options);
  add_executable(step, step.last_pass, "last pass", graphs.last_pass, layout, options);
  add_executable(step, step.update, "update", graphs.update, layout, options);
  add_executable(step, step.eval, "eval", graphs.eval, layout, options);
  add_executable(step, step.gather, "gather", graphs.gather, layout, options);
  add_executable(step, step.exchange, "exchange", graphs.exchange, layout, options);
  step.persistents = layout.items();
  set_pieces(step, graphs.layout, options);
  set_masters(step);
  if (step.position.shape.pipeline > 1) step.micro_batches = options.parallel.micro_batches;
  return step;
}

}  // namespace

bool CompileOptions::leaves_out(std::string_view pass) const {
  return std::find(without.begin(), without.end(), pass) != without.end();
}

bool CompileOptions::may_overwrite_gradients() const {
  const bool reduces_each = parallel.at.shape.data > 1 && !parallel.reduce_once;
  return overwrite_gradients && (parallel.micro_batches == 1 || reduces_each) &&
         !leaves_out(kOverwriteGradientsPass.name);
}

CompiledStep compile_step(const Graph& forward, const CompileOptions& options) {
  CompiledStep step = assemble(run_passes(forward, options), options);
  if (!options.leaves_out(kRecomputePass.name)) step.recompute = options.recompute;
  step.model_flops = training_model_flops(forward);
  step.num_params = count_params(forward);
  step.tensors = model_tensors(forward, options);
  step.metrics = metric_names(forward);
  for (std::string_view name : {kFp8Activations, kFp8Gradients}) {
    if (const Persistent* state = step.find(name))
      step.tensors.push_back({state->name, state->slice.type.shape});
  }
  add_host(step, options);
  return step;
}

namespace {

// What a forward alone has of a step: one rank, no gradients.
CompileOptions forward_options(CompileOptions options) {
  options.parallel = {};
  options.scratch = 0;  // which is for gradients
  return options;
}

CompiledStep assemble_forward(const Graph& forward, const StepGraphs& graphs, const CompileOptions& options) {
  CompiledStep step;
  PersistentLayout layout;
  for (const Graph* graph : {&graphs.eval, &graphs.prefill, &graphs.decode}) layout.add(*graph);
  step.sizes = layout.sizes();
  step.persistents = layout.items();
  set_pieces(step, graphs.layout, options);
  for (Persistent& item : step.persistents) item.saved = item.slice.arena != Arena::Cache;
  add_executable(step, step.eval, "forward", graphs.eval, layout, options);
  add_executable(step, step.prefill, "prefill", graphs.prefill, layout, options);
  add_executable(step, step.decode, "decode", graphs.decode, layout, options);
  add_host(step, options);
  step.model_flops = forward_model_flops(forward);
  step.num_params = count_params(forward);
  return step;
}

}  // namespace

CompiledStep compile_forward(const Graph& forward, const CompileOptions& options, ForwardOutput output) {
  const CompileOptions alone = forward_options(options);
  return assemble_forward(forward, run_forward_passes(forward, alone, output), alone);
}

CompiledStep compile_generation(const Graph& forward, const CompileOptions& options,
                                const GenerationOptions& generation) {
  const CompileOptions alone = forward_options(options);
  CompiledStep step = assemble_forward(forward, run_generation_passes(forward, alone, generation), alone);
  const int64_t context = forward.type(forward.find("tokens")).shape[1];
  step.positions = generation.positions == 0 ? context : generation.positions;
  return step;
}

}  // namespace tandem
