#include "tandem/plan/estimate.h"

#include <algorithm>
#include <cmath>

#include "tandem/base/error.h"
#include "tandem/plan/collective_cost.h"
#include "tandem/plan/in_threads.h"
#include "tandem/plan/program.h"
#include "tandem/plan/simulate.h"
#include "tandem/train/compile_config.h"

namespace tandem::plan {
namespace {

bool has(const Candidate& candidate, OffloadKind kind) {
  return std::find(candidate.offload.begin(), candidate.offload.end(), kind) != candidate.offload.end();
}
bool shards_optimizer(Strategy strategy) {
  return strategy == Strategy::Zero1 || strategy == Strategy::Zero2 || strategy == Strategy::Fsdp;
}

// Computation and what it waits for: collectives of the tensor axis are on its stream.
double busy_seconds(const Executable& executable, const Cluster& cluster, const MeshPosition& at) {
  double seconds = 0;
  for (const Item& item : program_of(executable, cluster, at, 1)) {
    if (item.stream == kComputeStream) seconds += item.seconds + std::max(cluster.launch, cluster.issue);
  }
  return seconds;
}

Estimator::Part minus(const Estimator::Part& a, const Estimator::Part& b) {
  return {a.seconds - b.seconds, a.update_seconds - b.update_seconds, a.weights - b.weights,
          a.state - b.state, a.activations - b.activations};
}

// Chunks of the model whose activations the first stage holds at most, as parts of all that it has.
double chunks_in_flight(const Candidate& c, int64_t passes) {
  const double stages = c.mesh.pipeline, chunks = static_cast<double>(c.chunks);
  if (c.mesh.pipeline == 1) return 1;
  const auto all = static_cast<double>(passes);
  if (c.schedule == PipelineSchedule::GPipe) return all;
  if (c.chunks == 1) return std::min(stages, all);
  return std::min(2 * (stages - 1) + (chunks - 1) * stages + 1, all * chunks) / chunks;
}

}  // namespace

Estimator::Key Estimator::key_of(const Candidate& c) {
  return {c.mesh.tensor, c.micro_batch, static_cast<int>(c.precision), static_cast<int>(c.recompute.kind),
          c.recompute.every};
}

Estimator::Estimator(const Config& config, const Backend& backend, const Cluster& cluster,
                     const BuildModel& model, const std::vector<Candidate>& candidates, int num_blocks,
                     int threads)
    : config_(config), cluster_(cluster), blocks_(num_blocks) {
  // Blocks that are not alike say nothing of each other; `auto` may choose for one what it would not for all.
  const bool is_alike = config.model.has(kEqualBlocks) && num_blocks >= 2;
  std::vector<std::pair<const Candidate*, std::optional<Probe>*>> wanted;
  for (const Candidate& candidate : candidates) {
    if (!is_alike || candidate.recompute.kind == RecomputeKind::Auto) continue;
    const auto [it, is_new] = probes_.try_emplace(key_of(candidate));
    if (is_new) wanted.emplace_back(&candidate, &it->second);
  }
  for_each_in_threads(0, wanted.size(), threads, [&](size_t i) {
    try {
      const Part one = measure(*wanted[i].first, 1, backend, model);
      const Part block = minus(measure(*wanted[i].first, 2, backend, model), one);
      *wanted[i].second = Probe{block, minus(one, block)};
    } catch (const ConfigError&) {
      // Not known: whoever compiles all of it will see.
    }
  });
}

Estimator::Part Estimator::measure(const Candidate& candidate, int64_t layers, const Backend& backend,
                                   const BuildModel& model) const {
  Candidate alone = candidate;
  alone.mesh.data = alone.mesh.pipeline = 1;
  alone.strategy = Strategy::Single;
  alone.sync = GradientSync::Pass;
  alone.chunks = 1;
  alone.offload.clear();
  Config config = with(config_, alone);
  config.train.batch = candidate.micro_batch;
  config.model.layers = layers;
  const MeshPosition at{alone.mesh, 0, 0, 0};
  CompileOptions options = compile_options(config, backend, at);
  options.overwrite_gradients = false;  // they would share the activations' memory
  const CompiledStep step = compile_config(config, options, model);
  const auto bytes = [&](Arena arena) { return static_cast<double>(step.sizes[static_cast<size_t>(arena)]); };
  return {.seconds = busy_seconds(step.pass, cluster_, at),
          .update_seconds = busy_seconds(step.update, cluster_, at),
          .weights = bytes(Arena::Weights),
          .state = bytes(Arena::Master) + bytes(Arena::Optimizer),
          .activations = bytes(Arena::Activations)};
}

// Of a stage, what its collectives take in one pass that has all of them.
double Estimator::data_axis_seconds(const Candidate& c, const Probe& probe) const {
  if (c.mesh.data == 1) return 0;
  const Group group = group_of(c.mesh, Axis::Data, cluster_.gpus_per_node);
  const double storage = c.precision == Precision::Fp32 ? 4 : 2;
  const double reduced = config_.parallel.reduce == ReduceType::Bf16 ? 2 : 4;
  const double weights = probe.block.weights, gradients = weights / storage * reduced;
  double block = 0;
  if (c.strategy == Strategy::Fsdp) block += 2 * collective_seconds(cluster_, Op::AllGather, group, weights);
  block += c.strategy == Strategy::Ddp ? collective_seconds(cluster_, Op::AllReduce, group, gradients)
                                       : collective_seconds(cluster_, Op::ReduceScatter, group, gradients);
  return block * std::floor(static_cast<double>(blocks_) / c.mesh.pipeline);
}

// What a pass waits for the stages beside it, at least: every chunk's input and its gradient come in.
double Estimator::sends_seconds(const Candidate& c) const {
  if (c.mesh.pipeline == 1 || !config_.model.is_language_model()) return 0;
  const double storage = c.precision == Precision::Fp32 ? 4 : 2;
  const double bytes =
      static_cast<double>(c.micro_batch * config_.model.context * config_.model.width) * storage;
  return static_cast<double>(2 * c.chunks - 1) * send_seconds(cluster_, c.mesh.data * c.mesh.tensor, bytes);
}

// Of the rank that has the least of each: the real ones need more.
double Estimator::memory_bytes(const Candidate& c, const Probe& probe) const {
  const double data = c.mesh.data, blocks = std::floor(static_cast<double>(blocks_) / c.mesh.pipeline);
  const double storage = c.precision == Precision::Fp32 ? 4 : 2;
  const bool shards_weights = c.strategy == Strategy::Fsdp;
  const bool whole_gradients = c.strategy == Strategy::Ddp || c.sync == GradientSync::Step;
  const double of_weights = has(c, OffloadKind::Params) ? 0 : shards_weights ? 1 / data : 1;
  const double of_state = has(c, OffloadKind::Optimizer) ? 0 : shards_optimizer(c.strategy) ? 1 / data : 1;
  const double gradient = config_.memory.gradients == ReduceType::Bf16 ? 2 : 4;
  const double of_gradients = gradient / storage * (c.mesh.data == 1 ? 0 : whole_gradients ? 1 : 1 / data);
  const auto kept = [&](const Part& part, double parts) {
    return parts * (part.weights * (of_weights + of_gradients) + part.state * of_state);
  };
  const double activations = std::max(0.0, probe.block.activations);
  const double flight = chunks_in_flight(c, c.passes(config_.train.batch));
  // On the host they are, but for those of the block at work.
  const double held = has(c, OffloadKind::Activations) ? 1 : blocks;
  double first = kept(probe.block, blocks) + held * activations * flight;
  if (shards_weights && c.mesh.data > 1) first += 2 * probe.block.weights;  // the block at work and the next
  // The last stage has the head, about half of what is no block, and one pass in flight.
  const double of_rest = c.mesh.pipeline == 1 ? 1 : 0.5;
  const double last = kept(probe.block, blocks) + held * activations + kept(probe.rest, of_rest) +
                      of_rest * std::max(0.0, probe.rest.activations);
  return std::max(first, last);
}

double Estimator::update_seconds(const Candidate& c, const Probe& probe) const {
  const double blocks = static_cast<double>(blocks_) / c.mesh.pipeline;
  const double share = shards_optimizer(c.strategy) ? 1.0 / c.mesh.data : 1.0;
  const double weights = probe.block.weights * blocks;
  double seconds = 0;
  if (has(c, OffloadKind::Optimizer)) {
    const int ranks_on_node = std::min(cluster_.gpus_per_node, c.mesh.world());
    const double state = probe.block.state * blocks * share;
    seconds +=
        2 * state / (cluster_.host_bandwidth / ranks_on_node) + weights * share * 2 / cluster_.gpu.pcie;
  } else {
    seconds += probe.block.update_seconds * blocks * share;
  }
  const bool gathers = c.strategy == Strategy::Zero1 || c.strategy == Strategy::Zero2;
  if (gathers && c.mesh.data > 1)
    seconds += collective_seconds(cluster_, Op::AllGather,
                                  group_of(c.mesh, Axis::Data, cluster_.gpus_per_node), weights);
  return seconds;
}

Estimate Estimator::of(const Candidate& c) const {
  const auto found = probes_.find(key_of(c));
  if (found == probes_.end() || !found->second) return {};
  const Probe& probe = *found->second;
  const double stages = c.mesh.pipeline, blocks = blocks_;
  const double most = std::ceil(blocks / stages), fewest = std::floor(blocks / stages);
  const int64_t passes = c.passes(config_.train.batch);
  // The head makes the last stage the longest, where it has as many blocks.
  double busy = c.mesh.pipeline == 1
                    ? blocks * probe.block.seconds + probe.rest.seconds
                    : std::max(most * probe.block.seconds, fewest * probe.block.seconds + probe.rest.seconds);
  const double sent = data_axis_seconds(c, probe);
  double moved = 0;  // weights that come in from the host, twice a pass
  if (has(c, OffloadKind::Params)) moved = 2 * probe.block.weights * most / c.mesh.data / cluster_.gpu.pcie;
  busy += sends_seconds(c);
  // Collectives beside it make computation slower.
  const double slowdown = SimulationOptions{}.slowdown;
  const double slowed = busy + slowdown / (1 + slowdown) * std::min(busy, sent);
  const double pass = std::max({slowed, sent, moved});
  const double rounds = static_cast<double>(passes) + (stages - 1) / static_cast<double>(c.chunks);
  Estimate estimate;
  estimate.seconds = c.sync == GradientSync::Step ? busy * (rounds - 1) + pass : pass * rounds;
  estimate.seconds += update_seconds(c, probe);

  estimate.memory = memory_bytes(c, probe);
  return estimate;
}

}  // namespace tandem::plan
