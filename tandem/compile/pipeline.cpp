#include "tandem/compile/pipeline.h"

#include <chrono>

#include "tandem/compile/cost.h"
#include "tandem/compile/differentiate.h"
#include "tandem/compile/inference.h"
#include "tandem/compile/lower.h"
#include "tandem/compile/memory_plan.h"
#include "tandem/compile/recompute.h"
#include "tandem/compile/schedule.h"
#include "tandem/compile/update_graph.h"
#include "tandem/ir/verify.h"

namespace tandem {
namespace {

class PassRunner {
 public:
  explicit PassRunner(const CompileOptions& options) : options_(options) {}

  template <typename Pass>
  Graph run(std::string_view name, Pass&& pass) const {
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

// What the differentiated graph becomes under one choice of recomputation.
Graph finish_pass(const PassRunner& passes, const Graph& differentiated, const Recompute& choice,
                  const CompileOptions& options) {
  Graph graph = passes.run("recompute", [&] { return recompute(differentiated, choice); });
  if (options.fuse_enabled) graph = passes.run("fuse", [&] { return fuse(graph, options.fuse); });
  return passes.run("schedule", [&] { return schedule(graph); });
}

Graph finish_eval(const Graph& forward, const CompileOptions& options, bool keep_logits) {
  Graph graph = inference(forward, keep_logits);
  if (options.fuse_enabled) graph = fuse(graph, options.fuse);
  graph = schedule(graph);
  verify(graph, "inference");
  return graph;
}

void add_executable(CompiledStep& step, Executable& slot, std::string name, const Graph& graph,
                    const PersistentLayout& layout, const CompileOptions& options) {
  const MemoryPlan plan = plan_memory(graph, layout);
  slot = lower(std::move(name), graph, plan, options.choose);
  auto& activations = step.sizes[static_cast<size_t>(Arena::Activations)];
  auto& workspace = step.sizes[static_cast<size_t>(Arena::Workspace)];
  activations = std::max(activations, plan.activation_bytes);
  for (const Command& command : slot.commands) workspace = std::max(workspace, command.workspace_bytes);
}

void set_persistents(CompiledStep& step, const PersistentLayout& layout, const CompileOptions& options) {
  step.sizes = layout.sizes();
  step.sizes[static_cast<size_t>(Arena::Host)] = options.host_bytes;
  step.persistents = layout.items();
}

int64_t count_params(const Graph& graph) {
  int64_t count = 0;
  for (const Node& node : graph.nodes()) count += node.op == Op::Param ? node.outputs[0].shape.elems() : 0;
  return count;
}

CompiledStep assemble(const Graph& pass, const Graph& update, const Graph& eval,
                      const CompileOptions& options) {
  CompiledStep step;
  PersistentLayout layout;
  for (const Graph* graph : {&pass, &update, &eval}) layout.add(*graph);
  set_persistents(step, layout, options);
  add_executable(step, step.pass, "pass", pass, layout, options);
  add_executable(step, step.update, "update", update, layout, options);
  add_executable(step, step.eval, "eval", eval, layout, options);
  return step;
}

}  // namespace

CompiledStep compile_step(const Graph& forward, const CompileOptions& options) {
  const PassRunner passes(options);
  const Graph model = passes.run("model", [&] { return forward; });
  const Graph typed = passes.run("precision", [&] { return apply_precision(model, options.precision); });
  const Graph differentiated =
      passes.run("differentiate", [&] { return differentiate(typed, options.precision.gradients); });
  const Graph update = build_update(differentiated, options.optimizer, options.precision);
  verify(update, "update");
  const Graph eval = finish_eval(typed, options, /*keep_logits=*/false);

  const std::vector<Recompute> choices = options.recompute.kind == RecomputeKind::Auto
                                             ? recompute_candidates(num_blocks(differentiated))
                                             : std::vector<Recompute>{options.recompute};
  CompiledStep best;
  for (const Recompute& choice : choices) {
    CompiledStep step = assemble(finish_pass(passes, differentiated, choice, options), update, eval, options);
    step.recompute = choice;
    const bool smaller = best.pass.commands.empty() || total_bytes(step.sizes) < total_bytes(best.sizes);
    if (smaller) best = std::move(step);
    if (options.limit == 0 || total_bytes(best.sizes) <= options.limit) break;
  }
  best.model_flops = 3 * forward_model_flops(typed);
  best.num_params = count_params(typed);
  return best;
}

CompiledStep compile_forward(const Graph& forward, const CompileOptions& options, ForwardOutput output) {
  const Graph typed = apply_precision(forward, options.precision);
  const Graph eval = finish_eval(typed, options, output == ForwardOutput::Logits);
  CompiledStep step;
  PersistentLayout layout;
  layout.add(eval);
  set_persistents(step, layout, options);
  add_executable(step, step.eval, "forward", eval, layout, options);
  step.model_flops = forward_model_flops(typed);
  step.num_params = count_params(typed);
  return step;
}

}  // namespace tandem
