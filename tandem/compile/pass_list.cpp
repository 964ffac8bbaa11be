#include "tandem/compile/pass_list.h"

#include <algorithm>
#include <chrono>
#include <type_traits>

#include "tandem/base/error.h"
#include "tandem/compile/passes/cache.h"
#include "tandem/compile/passes/data_axis.h"
#include "tandem/compile/passes/differentiate.h"
#include "tandem/compile/passes/documents.h"
#include "tandem/compile/passes/fp8.h"
#include "tandem/compile/passes/inference.h"
#include "tandem/compile/passes/loss/loss_stats.h"
#include "tandem/compile/passes/loss/mix_images.h"
#include "tandem/compile/passes/metrics.h"
#include "tandem/compile/passes/norms/sync_norm.h"
#include "tandem/compile/passes/offload_activations.h"
#include "tandem/compile/passes/overwrite_gradients.h"
#include "tandem/compile/passes/recompute.h"
#include "tandem/compile/passes/remake_outputs.h"
#include "tandem/compile/passes/schedule.h"
#include "tandem/compile/passes/stage.h"
#include "tandem/compile/passes/tensor_axis.h"
#include "tandem/compile/passes/unroll.h"
#include "tandem/compile/pipeline_order.h"
#include "tandem/compile/trained.h"
#include "tandem/compile/update_graph.h"
#include "tandem/ir/verify.h"
#include "tandem/optimizers/packed_state.h"

namespace tandem {
namespace {

inline constexpr PassInfo kModelPass = {.name = "model"};

// A pass that sees each graph alone, and which of the parts it belongs to if it asks.
template <typename PassOfOne>
auto each(PassOfOne pass) {
  return [pass](const Graphs& graphs, [[maybe_unused]] Part part) {
    Graphs made;
    for (const Graph& graph : graphs) {
      if constexpr (std::is_invocable_v<PassOfOne, const Graph&, Part>) {
        made.push_back(pass(graph, part));
      } else {
        made.push_back(pass(graph));
      }
    }
    return made;
  };
}

// Attention's gradient may work on some sequences at a time: its kernel reads how much memory it should use.
Graph with_scratch(Graph graph, int64_t bytes) {
  for (int32_t id = 0; bytes > 0 && id < graph.num_nodes(); ++id) {
    if (graph.node(id).op == Op::Attention) graph.node(id).attrs.set("scratch", bytes);
  }
  return graph;
}

Graphs cut_stages(const Graph& graph, const ParallelOptions& parallel) {
  const int stages = parallel.at.shape.pipeline;
  Graphs chunks;
  for (int i = 0; i < parallel.chunks; ++i)
    chunks.push_back(
        cut_stage(graph, i * stages + parallel.at.pipeline, stages * parallel.chunks, parallel.at));
  return chunks;
}

GeluAgain gelu_again(const FuseOptions& fuse) {
  if (fuse.gelu_again) return GeluAgain::Always;
  return fuse.gelu_of_product ? GeluAgain::WithProduct : GeluAgain::AsChosen;
}

FuseOptions fuse_options(const CompileOptions& options) {
  FuseOptions fuse = options.fuse;
  fuse.sums_across_blocks = options.parallel.at.shape.world() == 1 && options.parallel.micro_batches == 1 &&
                            !options.parallel.fixed_order;
  return fuse;
}

// Where only the last pass of a step reduces gradients, there are two kinds of passes.
bool has_last_pass(const ParallelOptions& parallel) {
  return parallel.reduce_once && parallel.micro_batches > 1 && parallel.at.shape.data > 1;
}

// Gradients that are overwritten, on all chunks of the model or on none: the update takes them alike.
Graphs overwrite_all(const Graphs& graphs, bool each_apart) {
  Graphs made;
  for (const Graph& graph : graphs) {
    for (const Node& node : graph.nodes()) {
      const bool trained = node.op != Op::Param || is_frozen(node) || graph.find("grad:" + node.name).valid();
      if (!trained && !each_apart) return graphs;  // nobody would write its part of the unit
    }
    made.push_back(overwrite_gradients(graph));
    if (!overwrites_gradients(made.back())) return graphs;
  }
  return made;
}

DataAxisOptions data_options(const ParallelOptions& parallel, const StepDraft& draft) {
  return {.sharding = sharding_of(parallel.strategy),
          .accumulates = parallel.micro_batches > 1 || parallel.fixed_order,
          .once = has_last_pass(parallel),
          .overwrites = !draft.training.empty() && overwrites_gradients(draft.training.front()),
          .reduce = parallel.reduce,
          .fixed_order = parallel.fixed_order,
          .in_pipeline = parallel.at.shape.pipeline > 1,
          .offload_weights = parallel.offload_weights,
          .offload_optimizer = parallel.offload_optimizer};
}

Graph shard(const Graph& graph, const StepDraft& draft, const ParallelOptions& parallel, Part part) {
  const bool later = part == Part::Pass && has_last_pass(parallel);
  return shard_data(graph, draft.layout, data_options(parallel, draft), /*reduces=*/!later);
}

CacheOptions cache_options(const GenerationOptions& generation, Part part) {
  return {.rows = part == Part::Prefill ? generation.prefill_rows : 1,
          .most_rows = generation.prefill_rows,
          .positions = generation.positions,
          .logits = part == Part::Decode};
}

// The micro-batches of a step; of evaluation, the forwards of all chunks, one after the other.
Graph unroll_chunks(const Graphs& chunks, const ParallelOptions& parallel, Part part) {
  if (part != Part::Eval) {
    const auto micro_batches = static_cast<int>(parallel.micro_batches);
    return unroll(chunks,
                  pipeline_order(parallel.schedule, parallel.at.pipeline, parallel.at.shape.pipeline,
                                 parallel.chunks, micro_batches),
                  micro_batches);
  }
  std::vector<PipelineSlot> order;
  for (int i = 0; i < static_cast<int>(chunks.size()); ++i) order.push_back({true, i, 0});
  return unroll(chunks, order, 1);
}

bool sums_stats(const ParallelOptions& parallel) {
  return parallel.at.shape.world() > 1 && parallel.at.counts_loss();
}

// Units of one parameter that the loss does not depend on.
std::set<std::string> untrained_units(const Graphs& training, const CompileOptions& options,
                                      const StepDraft& draft) {
  std::set<std::string> untrained;
  for (const std::string& name : draft.params) {
    if (options.parallel.stays_here() && !training.front().find("grad:" + name).valid())
      untrained.insert(name);
  }
  return untrained;
}

Graph update_of(const Graphs& training, const CompileOptions& options, const StepDraft& draft) {
  UpdateOptions update;
  update.optimizer = options.optimizer;
  update.state_type = options.state_type;
  update.muon_scale = options.muon_scale;
  update.ema = options.ema;
  update.sections = draft.sections;
  update.precision = options.precision;
  update.fixed_order = options.parallel.fixed_order;
  update.norms_apart = options.norms_apart;
  update.sums_stats = sums_stats(options.parallel);
  update.num_metrics = draft.metrics.size();
  update.sums_metrics = std::ranges::any_of(
      training, [](const Graph& graph) { return graph.find(std::string(kMetricSums)).valid(); });
  update.keep_gradients = options.parallel.micro_batches == 1 && overwrites_gradients(training.front());
  update.fp8_slots = static_cast<int64_t>(draft.fp8_slots.size());
  update.slots = draft.params;
  update.together = options.parallel.stays_here();
  update.untrained = untrained_units(training, options, draft);
  for (const std::string& name : draft.params) {
    const std::string apart = fmt::format("grad:{}{}", name, kEmbeddingPart);
    if (training.front().find(apart).valid()) update.split.push_back(name);
  }
  for (const Graph& graph : draft.model) {
    for (const Node& node : graph.nodes()) {
      if (node.op != Op::BatchNorm) continue;
      for (size_t i : {3, 4}) update.running.push_back(graph.node(node.inputs[i].node));
    }
  }
  return build_update(draft.layout, data_options(options.parallel, draft), update);
}

Graph gather_of(const CompileOptions& options, const StepDraft& draft) {
  return build_gather(draft.layout, data_options(options.parallel, draft), options.optimizer,
                      untrained_units(draft.training, options, draft));
}

Graph exchange_of(const CompileOptions& options, const StepDraft& draft) {
  return build_exchange(draft.layout, data_options(options.parallel, draft), options.precision,
                        untrained_units(draft.training, options, draft));
}

// Weights that are updated in parts lie whole on every rank, and come from masters that are restored in
// parts; or they are not what is restored.
bool gathers_restored(const CompileOptions& options) {
  const Sharding sharding = sharding_of(options.parallel.strategy);
  const bool in_parts = sharding.optimizer && !sharding.weights && options.parallel.at.shape.data > 1;
  const bool averages = optimizer_entry(options.optimizer).averages;
  return averages || (in_parts && options.precision.masters());
}

}  // namespace

bool Pass::runs_for(Part part) const { return std::find(parts.begin(), parts.end(), part) != parts.end(); }

std::vector<Pass> pass_list(const CompileOptions& options, const StepDraft& draft, ForwardOutput output) {
  const ParallelOptions& parallel = options.parallel;
  const bool pipeline = parallel.at.shape.pipeline > 1, each_apart = parallel.stays_here();
  const bool fp8 = options.precision.fp8;
  // On one rank a tied table is summed as the two ends of a pipeline would, so that both give the same bits.
  const bool split_tied =
      parallel.at.shape.world() == 1 && parallel.micro_batches > 1 && !parallel.fixed_order;
  const bool again = options.recompute.kind == RecomputeKind::Selective && options.fuse.outputs_again;
  using enum Part;
  // clang-format off
  return {
      // The model, as this rank has it.
      {kModelPass, {Model}, true,
       each([&](const Graph& g) { return with_scratch(g, options.scratch); })},
      {kDocumentsPass, {Model}, options.separate_documents,
       each([](const Graph& g) { return separate_documents(g); })},
      {kTensorPass, {Model}, true,
       each([&](const Graph& g) { return shard_tensor(g, parallel.at); })},
      {kSyncNormPass, {Model}, true,
       each([&](const Graph& g) { return sync_norm(g, parallel.at); })},
      {kStagePass, {Model}, pipeline,
       [&](const Graphs& g, Part) { return cut_stages(g.front(), parallel); }},
      {kPrecisionPass, {Model}, true,
       each([&](const Graph& g) { return apply_precision(g, options.precision); })},

      // One micro-batch of training.
      {kDifferentiatePass, {Training}, true,
       each([&, split_tied](const Graph& g) { return differentiate(g, options.precision, split_tied); })},
      {kMixImagesPass, {Training}, options.mixes_images,
       each([](const Graph& g) { return mix_images(g); })},
      {kLossStatsPass, {Training}, sums_stats(parallel),
       each([&](const Graph& g) { return sum_stats(g, parallel.fixed_order); })},
      {kMetricsPass, {Training}, !draft.metrics.empty(),
       each([&](const Graph& g) { return sum_metrics(g, draft.metrics, parallel.fixed_order); })},
      {kOverwriteGradientsPass, {Training}, options.may_overwrite_gradients(),
       [each_apart](const Graphs& g, Part) { return overwrite_all(g, each_apart); }},
      {kAgainPass, {Pass, LastPass}, again && !fp8 && !options.leaves_out(kFusePass.name),
       each([](const Graph& g) { return remake_outputs(g); })},
      {kRecomputePass, {Pass, LastPass}, true,
       each([&](const Graph& g) { return recompute(g, options.recompute, gelu_again(options.fuse)); })},
      {kFp8Pass, {Pass, LastPass}, fp8,
       each([&](const Graph& g) { return quantize_products(g, draft.fp8_slots); })},

      // Evaluation and generation, and what they have in common with training.
      {kInferencePass, {Eval, Prefill, Decode}, true,
       each([output](const Graph& g, Part part) {
         return inference(g, part != Eval || output == ForwardOutput::Logits);
       })},
      {kCachePass, {Prefill, Decode}, true,
       each([&](const Graph& g, Part part) { return with_cache(g, cache_options(draft.generation, part)); })},
      {kFusePass, {Pass, LastPass, Eval, Prefill, Decode}, true,
       each([&](const Graph& g) { return fuse(g, fuse_options(options)); })},
      {kOffloadActivationsPass, {Pass, LastPass}, parallel.offloaded_activations > 0,
       each([&](const Graph& g) { return offload_activations(g, parallel.offloaded_activations); })},
      {kDataPass, {Pass, LastPass, Eval, Prefill, Decode}, true,
       each([&](const Graph& g, Part part) { return shard(g, draft, parallel, part); })},
      {kSchedulePass, {Pass, LastPass, Eval, Prefill, Decode}, true,
       each([](const Graph& g) { return schedule(g); })},
      {kUnrollPass, {Pass, LastPass, Eval}, pipeline,
       [&](const Graphs& g, Part part) { return Graphs{unroll_chunks(g, parallel, part)}; }},

      // The second half of a step; and what a run that goes on from a checkpoint does before its first.
      {kUpdatePass, {Update}, true,
       [&](const Graphs& g, Part) { return Graphs{update_of(g, options, draft)}; }},
      {kGatherPass, {Gather}, gathers_restored(options),
       [&](const Graphs&, Part) { return Graphs{gather_of(options, draft)}; }},
      {kExchangePass, {Exchange}, options.shows_ema,
       [&](const Graphs&, Part) { return Graphs{exchange_of(options, draft)}; }},
  };
  // clang-format on
}

namespace {

std::string observed_name(const Pass& pass, Part part) {
  const bool shared = part == Part::Eval && pass.runs_for(Part::Pass);
  const std::string_view prefix = part == Part::Prefill  ? "prefill."
                                  : part == Part::Decode ? "decode."
                                  : shared               ? kEvalPrefix
                                                         : "";
  return fmt::format("{}{}", prefix, pass.info.name);
}

class PassRunner {
 public:
  PassRunner(const CompileOptions& options, const StepDraft& draft,
             ForwardOutput output = ForwardOutput::Loss)
      : options_(options), passes_(pass_list(options, draft, output)) {}

  Graphs run(Part part, Graphs graphs) const {
    for (const Pass& pass : passes_) {
      if (!pass.runs_for(part) || !pass.applies || options_.leaves_out(pass.info.name)) continue;
      if (options_.while_compiling) options_.while_compiling();
      const std::string name = observed_name(pass, part);
      const auto start = std::chrono::steady_clock::now();
      graphs = pass.run(graphs, part);
      for (const Graph& graph : graphs) verify(graph, name);
      std::chrono::duration<double, std::milli> spent = std::chrono::steady_clock::now() - start;
      for (const Graph& graph : graphs) {
        if (options_.observe) options_.observe(name, graph, spent.count());
        spent = {};
      }
    }
    return graphs;
  }

  Graph run_to_one(Part part, const Graphs& graphs) const {
    Graphs made = run(part, graphs);
    return made.empty() ? Graph() : std::move(made.front());
  }

 private:
  const CompileOptions& options_;
  const std::vector<Pass> passes_;
};

// Tensor rank 0 holds what is on one rank only (positions, biases of row-split linears): its units are
// widest.
UnitLayout layout_units(const Graph& forward, const Graphs& model, const CompileOptions& options) {
  const MeshPosition& at = options.parallel.at;
  const PrecisionPolicy& precision = options.precision;
  const UnitKinds kinds{.each_apart = options.parallel.stays_here(),
                        .matrices_apart = precision.fp8 || precision.block_gradients != DType::F32 ||
                                          !optimizer_entry(options.optimizer).beside.empty(),
                        .matrix_gradients = precision.block_gradients,
                        .alignment = options.state_type == StateType::Int8 ? kStateBlock : kUnitAlignment};
  if (at.tensor == 0) return UnitLayout(model, at, nullptr, kinds);
  CompileOptions first = options;
  first.parallel.at.tensor = 0;
  first.observe = nullptr;
  const UnitLayout widest(PassRunner(first, {}).run(Part::Model, {forward}), first.parallel.at, nullptr,
                          kinds);
  return UnitLayout(model, at, &widest, kinds);
}

void check_left_out(const CompileOptions& options) {
  const std::vector<std::string_view> optional = optional_passes();
  for (const std::string& name : options.without)
    TANDEM_CHECK(std::find(optional.begin(), optional.end(), name) != optional.end(), "{} cannot be left out",
                 name);
}

void check_block_matrices(const Graph& forward, OptimizerKind optimizer) {
  const OptimizerEntry& entry = optimizer_entry(optimizer);
  if (entry.beside.empty()) return;
  for (const Node& node : forward.nodes()) {
    if (node.op == Op::Param && node.block != kNoBlock && node.outputs[0].shape.rank() > 1) return;
  }
  throw ConfigError("train.optimizer: {} trains the matrices of blocks, and this model has none; use {}",
                    entry.name, entry.beside);
}

std::vector<Pass> every_pass() {
  static const CompileOptions options;
  static const StepDraft draft;
  return pass_list(options, draft);
}

}  // namespace

StepGraphs run_passes(const Graph& forward, const CompileOptions& options) {
  check_left_out(options);
  StepDraft draft;
  for (const Node& node : forward.nodes()) {
    if (node.op == Op::Param) draft.params.push_back(node.name);
  }
  if (options.precision.fp8) draft.fp8_slots = fp8_weight_names(forward);
  check_block_matrices(forward, options.optimizer);
  draft.sections = row_sections(forward);
  draft.metrics = metric_names(forward);
  const PassRunner passes(options, draft);
  draft.model = passes.run(Part::Model, {forward});
  draft.layout = layout_units(forward, draft.model, options);
  draft.training = passes.run(Part::Training, draft.model);
  StepGraphs graphs;
  graphs.pass = passes.run_to_one(Part::Pass, draft.training);
  if (has_last_pass(options.parallel)) graphs.last_pass = passes.run_to_one(Part::LastPass, draft.training);
  graphs.update = passes.run_to_one(Part::Update, draft.training);
  graphs.eval = passes.run_to_one(Part::Eval, draft.model);
  graphs.gather = passes.run_to_one(Part::Gather, {});
  graphs.exchange = passes.run_to_one(Part::Exchange, {});
  graphs.layout = std::move(draft.layout);
  return graphs;
}

StepGraphs run_forward_passes(const Graph& forward, const CompileOptions& options, ForwardOutput output) {
  check_left_out(options);
  StepDraft draft;
  const PassRunner passes(options, draft, output);
  draft.model = passes.run(Part::Model, {forward});
  draft.layout = layout_units(forward, draft.model, options);
  StepGraphs graphs;
  graphs.eval = passes.run_to_one(Part::Eval, draft.model);
  graphs.layout = std::move(draft.layout);
  return graphs;
}

StepGraphs run_generation_passes(const Graph& forward, const CompileOptions& options,
                                 const GenerationOptions& generation) {
  check_left_out(options);
  StepDraft draft;
  draft.generation = generation;
  const PassRunner passes(options, draft);
  draft.model = passes.run(Part::Model, {forward});
  draft.layout = layout_units(forward, draft.model, options);
  StepGraphs graphs;
  graphs.prefill = passes.run_to_one(Part::Prefill, draft.model);
  graphs.decode = passes.run_to_one(Part::Decode, draft.model);
  graphs.layout = std::move(draft.layout);
  return graphs;
}

std::vector<std::string> pass_names() {
  std::vector<std::string> names;
  for (const Pass& pass : every_pass()) {
    if (pass.parts.front() != Part::Prefill) names.push_back(observed_name(pass, pass.parts.front()));
  }
  for (const Pass& pass : every_pass()) {
    if (pass.runs_for(Part::Pass) && pass.runs_for(Part::Eval))
      names.push_back(observed_name(pass, Part::Eval));
  }
  return names;
}

std::vector<std::string_view> optional_passes() {
  std::vector<std::string_view> names;
  for (const Pass& pass : every_pass()) {
    if (pass.info.optional) names.push_back(pass.info.name);
  }
  return names;
}

}  // namespace tandem
