#include "tandem/compile/compile_step.h"

#include <algorithm>
#include <chrono>
#include <map>

#include "tandem/base/error.h"
#include "tandem/compile/cost.h"
#include "tandem/compile/lower.h"
#include "tandem/compile/memory_plan.h"
#include "tandem/compile/passes/data_axis.h"
#include "tandem/compile/passes/differentiate.h"
#include "tandem/compile/passes/fp8.h"
#include "tandem/compile/passes/inference.h"
#include "tandem/compile/passes/loss_scaler.h"
#include "tandem/compile/passes/loss_stats.h"
#include "tandem/compile/passes/overwrite_gradients.h"
#include "tandem/compile/passes/recompute.h"
#include "tandem/compile/passes/remake_outputs.h"
#include "tandem/compile/passes/schedule.h"
#include "tandem/compile/passes/stage.h"
#include "tandem/compile/passes/sync_norm.h"
#include "tandem/compile/passes/tensor_axis.h"
#include "tandem/compile/passes/unroll.h"
#include "tandem/compile/pipeline_order.h"
#include "tandem/compile/update_graph.h"
#include "tandem/ir/verify.h"

namespace tandem {
namespace {

class PassRunner {
 public:
  explicit PassRunner(const CompileOptions& options) : options_(options) {}

  template <typename Pass>
  Graph run(std::string_view name, Pass&& pass) const {
    if (options_.while_compiling) options_.while_compiling();
    const auto start = std::chrono::steady_clock::now();
    Graph graph = pass();
    verify(graph, name);
    const std::chrono::duration<double, std::milli> spent = std::chrono::steady_clock::now() - start;
    if (options_.observe) options_.observe(name, graph, spent.count());
    return graph;
  }

 private:
  const CompileOptions& options_;
};

// Attention's gradient may work on some sequences at a time: its kernel reads how much memory it should use.
Graph with_scratch(Graph graph, int64_t bytes) {
  for (int32_t id = 0; bytes > 0 && id < graph.num_nodes(); ++id) {
    if (graph.node(id).op == Op::Attention) graph.node(id).attrs.set("scratch", bytes);
  }
  return graph;
}

// A rank's share of the model, ready to be differentiated: one graph, or one for each chunk of a pipeline.
std::vector<Graph> own_chunks(const PassRunner& passes, const Graph& forward, const CompileOptions& options) {
  const ParallelOptions& parallel = options.parallel;
  Graph graph = passes.run("model", [&] { return with_scratch(forward, options.scratch); });
  graph = passes.run("tensor", [&] { return shard_tensor(graph, parallel.at); });
  graph = passes.run("sync_norm", [&] { return sync_norm(graph, parallel.at); });
  const int stages = parallel.at.shape.pipeline;
  std::vector<Graph> chunks;
  for (int i = 0; stages > 1 && i < parallel.chunks; ++i) {
    const int chunk = i * stages + parallel.at.pipeline;
    chunks.push_back(
        passes.run("stage", [&] { return cut_stage(graph, chunk, stages * parallel.chunks, parallel.at); }));
  }
  if (stages == 1) chunks.push_back(std::move(graph));
  for (Graph& chunk : chunks)
    chunk = passes.run("precision", [&] { return apply_precision(chunk, options.precision); });
  return chunks;
}

// Tensor rank 0 holds what is on one rank only (positions, biases of row-split linears): its units are
// widest.
UnitLayout layout_units(const Graph& forward, const std::vector<Graph>& typed,
                        const CompileOptions& options) {
  const MeshPosition& at = options.parallel.at;
  if (at.tensor == 0) return UnitLayout(typed, at);
  CompileOptions first = options;
  first.parallel.at.tensor = 0;
  first.observe = nullptr;
  const UnitLayout widest(own_chunks(PassRunner(first), forward, first), first.parallel.at);
  return UnitLayout(typed, at, &widest);
}

// Where only the last pass of a step reduces gradients, there are two kinds of passes.
bool has_last_pass(const ParallelOptions& parallel) {
  return parallel.reduce_once && parallel.micro_batches > 1 && parallel.at.shape.data > 1;
}

DataAxisOptions data_options(const ParallelOptions& parallel) {
  return {.sharding = sharding_of(parallel.strategy),
          .accumulates = parallel.micro_batches > 1,
          .once = has_last_pass(parallel),
          .reduce = parallel.reduce,
          .in_pipeline = parallel.at.shape.pipeline > 1,
          .offload_weights = parallel.offload_weights,
          .offload_optimizer = parallel.offload_optimizer};
}

// The parts of a step before its passes are finished.
struct Draft {
  std::vector<Graph> typed;           // forward, one a chunk
  std::vector<Graph> differentiated;  // likewise
  UnitLayout layout;                  // where parameters lie in units
  Graph update, eval, gather;
};

GeluAgain gelu_again(const FuseOptions& fuse) {
  if (fuse.gelu_again) return GeluAgain::Always;
  return fuse.gelu_of_product ? GeluAgain::WithProduct : GeluAgain::AsChosen;
}

Graph finish_chunk(const PassRunner& passes, const Graph& differentiated, const Draft& draft,
                   const CompileOptions& options, bool reduces) {
  Graph graph = differentiated;
  const bool selective = options.recompute.kind == RecomputeKind::Selective;
  if (selective && options.fuse_enabled && options.fuse.outputs_again && !options.precision.fp8)
    graph = passes.run("again", [&] { return remake_outputs(graph); });
  graph =
      passes.run("recompute", [&] { return recompute(graph, options.recompute, gelu_again(options.fuse)); });
  if (options.precision.fp8) graph = passes.run("fp8", [&] { return quantize_products(graph); });
  FuseOptions fused = options.fuse;
  fused.sums_across_blocks = options.parallel.at.shape.world() == 1 && options.parallel.micro_batches == 1;
  if (options.fuse_enabled) graph = passes.run("fuse", [&] { return fuse(graph, fused); });
  if (options.parallel.in_units()) {
    const DataAxisOptions data = data_options(options.parallel);
    graph = passes.run("data", [&] { return shard_data(graph, draft.layout, data, reduces); });
  }
  return passes.run("schedule", [&] { return schedule(graph); });
}

Graph finish_pass(const PassRunner& passes, const Draft& draft, const CompileOptions& options, bool reduces) {
  std::vector<Graph> chunks;
  for (const Graph& graph : draft.differentiated)
    chunks.push_back(finish_chunk(passes, graph, draft, options, reduces));
  const ParallelOptions& parallel = options.parallel;
  if (parallel.at.shape.pipeline == 1) return std::move(chunks.front());
  const auto micro_batches = static_cast<int>(parallel.micro_batches);
  return passes.run("unroll", [&] {
    return unroll(chunks,
                  pipeline_order(parallel.schedule, parallel.at.pipeline, parallel.at.shape.pipeline,
                                 parallel.chunks, micro_batches),
                  micro_batches);
  });
}

Graph finish_forward(const Graph& forward, const UnitLayout& layout, const CompileOptions& options,
                     bool keep_logits) {
  Graph graph = inference(forward, keep_logits);
  if (options.fuse_enabled) graph = fuse(graph, options.fuse);
  if (options.parallel.in_units()) graph = shard_data(graph, layout, data_options(options.parallel));
  graph = schedule(graph);
  verify(graph, "inference");
  return graph;
}

// The forwards of all chunks of this rank, one after the other.
Graph finish_eval(const Draft& draft, const CompileOptions& options) {
  std::vector<Graph> chunks;
  for (const Graph& typed : draft.typed)
    chunks.push_back(finish_forward(typed, draft.layout, options, /*keep_logits=*/false));
  if (options.parallel.at.shape.pipeline == 1) return std::move(chunks.front());
  std::vector<PipelineSlot> order;
  for (int i = 0; i < static_cast<int>(chunks.size()); ++i) order.push_back({true, i, 0});
  Graph graph = unroll(chunks, order, 1);
  verify(graph, "inference");
  return graph;
}

Draft draft_step(const PassRunner& passes, const Graph& forward, const CompileOptions& options) {
  Draft draft;
  const ParallelOptions& parallel = options.parallel;
  const DataAxisOptions data = data_options(parallel);
  draft.typed = own_chunks(passes, forward, options);
  // On one rank a tied table is summed as the two ends of a pipeline would, so that both give the same bits.
  const bool split_tied = parallel.at.shape.world() == 1 && parallel.micro_batches > 1;
  const bool sums_stats = parallel.at.shape.world() > 1 && parallel.at.counts_loss();
  for (const Graph& typed : draft.typed) {
    draft.differentiated.push_back(passes.run("differentiate", [&] {
      Graph graph = differentiate(typed, options.precision, split_tied);
      return sums_stats ? sum_stats(std::move(graph)) : graph;
    }));
  }
  UpdateOptions update{options.optimizer, options.precision, {}, {}, {}};
  update.sums_stats = sums_stats;
  if (options.overwrite_gradients && parallel.micro_batches == 1 && !parallel.in_units())
    update.keep_gradients = overwrite_gradients(draft.differentiated.front());
  if (options.precision.fp8) update.fp8_slots = num_fp8_weights(draft.typed.front());
  for (const Node& node : forward.nodes()) {
    if (node.op != Op::Param) continue;
    update.slots.push_back(node.name);
    const std::string apart = fmt::format("grad:{}{}", node.name, kEmbeddingPart);
    if (draft.differentiated.front().find(apart).valid()) update.split.push_back(node.name);
  }
  for (const Graph& typed : draft.typed) {
    for (const Node& node : typed.nodes()) {
      if (node.op != Op::BatchNorm) continue;
      for (size_t i : {3, 4}) update.running.push_back(typed.node(node.inputs[i].node));
    }
  }
  if (parallel.in_units()) {
    draft.layout = layout_units(forward, draft.typed, options);
    draft.update = build_update(draft.layout, data, update);
    const bool in_parts = data.sharding.optimizer && !data.sharding.weights && parallel.at.shape.data > 1;
    if (in_parts && options.precision.masters()) draft.gather = build_gather(draft.layout, data);
  } else {
    draft.update = build_update(draft.differentiated.front(), update);
  }
  verify(draft.update, "update");
  draft.eval = finish_eval(draft, options);
  return draft;
}

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

// Which tensors lie in the buffers of units, and which of them this rank answers for.
void set_pieces(CompiledStep& step, const Draft& draft, const CompileOptions& options) {
  const MeshPosition& at = options.parallel.at;
  for (Persistent& item : step.persistents) {
    for (Piece& piece : item.pieces) {
      if (piece.tensor.starts_with(kMasterPrefix)) piece.tensor.erase(0, kMasterPrefix.size());
      piece.owned = at.data == 0 && at.tensor == 0;
    }
  }
  const Sharding sharding = sharding_of(options.parallel.strategy);
  const auto items = by_name(step.persistents);
  for (const Unit& unit : draft.layout.units()) {
    const Range whole = draft.layout.whole(unit), own = draft.layout.own(unit);
    const auto set = [&](std::string_view kind, Range range, std::string_view prefix, bool starts) {
      const auto it = items.find(fmt::format("{}:{}", kind, unit.name));
      if (it != items.end()) it->second->pieces = logical_pieces(draft.layout, unit, range, prefix, starts);
    };
    const Range optimizer = sharding.optimizer ? own : whole;
    set("weights", sharding.weights ? own : whole, "", true);
    set("master", optimizer, "", true);
    set("moment1", optimizer, "moment1:", false);
    set("moment2", optimizer, "moment2:", false);
  }
}

// Which weights are their masters rounded, and what of it all is saved.
void set_masters(CompiledStep& step) {
  const auto items = by_name(step.persistents);
  for (Persistent& item : step.persistents) {
    if (item.slice.arena == Arena::Gradients || item.slice.arena == Arena::Activations) item.saved = false;
    if (item.name == kLossScaler) item.saved = false;  // manifests have it
    if (!item.name.starts_with(kMasterPrefix)) continue;
    const std::string name = item.name.substr(kMasterPrefix.size());  // of a parameter, or of a unit
    auto found = items.find(name);
    if (found == items.end()) found = items.find("weights:" + name);
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
std::vector<ModelTensor> model_tensors(const Graph& forward, OptimizerKind optimizer) {
  std::vector<ModelTensor> tensors;
  for (const Node& node : forward.nodes()) {
    if (node.op != Op::Param && node.op != Op::State) continue;
    const Shape& shape = node.outputs[0].shape;
    tensors.push_back({node.name, shape});
    if (node.op != Op::Param) continue;
    tensors.push_back({"moment1:" + node.name, shape});
    if (optimizer == OptimizerKind::AdamW) tensors.push_back({"moment2:" + node.name, shape});
  }
  return tensors;
}

void add_host(CompiledStep& step, const CompileOptions& options) {
  step.sizes[static_cast<size_t>(Arena::Host)] = step.host_begin + options.host_bytes;
}

int64_t count_params(const Graph& graph) {
  int64_t count = 0;
  for (const Node& node : graph.nodes()) count += node.op == Op::Param ? node.outputs[0].shape.elems() : 0;
  return count;
}

CompiledStep assemble(const PassRunner& passes, const Draft& draft, const CompileOptions& options) {
  const bool two = has_last_pass(options.parallel);
  const Graph pass = finish_pass(passes, draft, options, /*reduces=*/!two);
  const Graph last = two ? finish_pass(passes, draft, options, /*reduces=*/true) : Graph();
  CompiledStep step;
  step.recompute = options.recompute;
  PersistentLayout layout;
  for (const Graph* graph : {&pass, &last, &draft.update, &draft.eval}) layout.add(*graph);
  step.position = options.parallel.at;
  step.sizes = layout.sizes();
  add_executable(step, step.pass, "pass", pass, layout, options);
  add_executable(step, step.last_pass, "last pass", last, layout, options);
  add_executable(step, step.update, "update", draft.update, layout, options);
  add_executable(step, step.eval, "eval", draft.eval, layout, options);
  add_executable(step, step.gather, "gather", draft.gather, layout, options);
  step.persistents = layout.items();
  set_pieces(step, draft, options);
  set_masters(step);
  add_host(step, options);
  if (step.position.shape.pipeline > 1) step.micro_batches = options.parallel.micro_batches;
  return step;
}

}  // namespace

CompiledStep compile_step(const Graph& forward, const CompileOptions& options) {
  const PassRunner passes(options);
  const Draft draft = draft_step(passes, forward, options);
  CompiledStep step = assemble(passes, draft, options);
  step.model_flops = 3 * forward_model_flops(forward);
  step.num_params = count_params(forward);
  step.tensors = model_tensors(forward, options.optimizer);
  for (std::string_view name : {kFp8Activations, kFp8Gradients}) {
    if (const Persistent* state = step.find(name))
      step.tensors.push_back({state->name, state->slice.type.shape});
  }
  return step;
}

CompiledStep compile_forward(const Graph& forward, const CompileOptions& options, ForwardOutput output) {
  CompileOptions alone = options;
  alone.parallel = {};
  const Graph typed = apply_precision(forward, options.precision);
  const Graph eval = finish_forward(typed, {}, alone, output == ForwardOutput::Logits);
  CompiledStep step;
  PersistentLayout layout;
  layout.add(eval);
  step.sizes = layout.sizes();
  step.persistents = layout.items();
  add_executable(step, step.eval, "forward", eval, layout, alone);
  add_host(step, alone);
  step.model_flops = forward_model_flops(forward);
  step.num_params = count_params(forward);
  return step;
}

}  // namespace tandem
