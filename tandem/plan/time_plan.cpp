#include "tandem/plan/time_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <numeric>
#include <set>

#include "tandem/base/error.h"
#include "tandem/base/quantity.h"
#include "tandem/compile/passes/recompute.h"
#include "tandem/config/mesh.h"
#include "tandem/plan/in_threads.h"
#include "tandem/plan/pipeline_slots.h"
#include "tandem/plan/shared_cores.h"

namespace tandem::plan {
namespace {

constexpr double kFirstWithFp8 = 8.9;
constexpr double kFirstWithBf16 = 8.0;

void check_mesh(const MeshShape& mesh, const Cluster& cluster) {
  if (mesh.world() == cluster.gpus) return;
  throw ConfigError(
      "--cluster {}:{}: the config's mesh has {} (data {} x tensor {} x pipeline {}); set parallel.* so that "
      "they are as many, or let --search choose",
      cluster.name, cluster.gpus, count_of(mesh.world(), "rank"), mesh.data, mesh.tensor, mesh.pipeline);
}

void check_precision(const Config& config, const Cluster& cluster) {
  if (cluster.is_cpu()) return;
  const bool narrow = config.precision == Precision::Bf16 || config.precision == Precision::Fp8;
  if (narrow && cluster.gpu.capability < kFirstWithBf16)
    throw ConfigError("precision: {} has no bf16; use fp16", cluster.gpu.name);
}

// Of each rank's computation, on cores that the ranks share.
int threads_on(const Cluster& cluster, const Config& config, int ranks) {
  return config.threads > 0 ? static_cast<int>(config.threads) : std::max(1, cluster.cores / ranks);
}

PipelineSchedule schedule_of(const Config& config) { return config.parallel.schedule; }

std::vector<PipelineSlot> slots_of(const Config& config, const MeshShape& mesh, int stage, int64_t passes) {
  return pipeline_order(schedule_of(config), stage, mesh.pipeline, static_cast<int>(config.parallel.chunks),
                        static_cast<int>(passes));
}

// What one rank's step runs, in order.
class RankProgram {
 public:
  // `passes` of the step of all `step` was compiled for, at `stage` of the pipeline.
  RankProgram(const CompiledStep& step, const Cluster& cluster, const Config& config, int stage,
              int64_t passes) {
    const MeshShape& mesh = step.position.shape;
    const int64_t reductions = mesh.pipeline > 1 ? passes_per_step(config) : 1;
    pass_ = program_of(step.pass, cluster, step.position, reductions);
    last_ = program_of(step.last_pass, cluster, step.position, reductions);
    update_ = program_of(step.update, cluster, step.position, reductions);
    const bool as_compiled = stage == step.position.pipeline && passes == step.micro_batches;
    if (mesh.pipeline > 1 && !as_compiled) {
      chunks_ = cut_slots(pass_, slots_of(config, mesh, step.position.pipeline, step.micro_batches),
                          static_cast<int>(config.parallel.chunks));
      move_stage(chunks_, stage - step.position.pipeline);
      program_ = in_order(chunks_, slots_of(config, mesh, stage, passes));
    } else {
      const auto runs = static_cast<int>(passes / step.micro_batches);
      const int before = last_.empty() ? runs : runs - 1;
      if (before > 0) program_.push_back({&pass_, before});
      if (!last_.empty()) program_.push_back({&last_, 1});
    }
    program_.push_back({&update_, 1});
  }
  RankProgram(const RankProgram&) = delete;
  RankProgram& operator=(const RankProgram&) = delete;

  const Program& program() const { return program_; }

 private:
  std::vector<Item> pass_, last_, update_;
  std::vector<ChunkItems> chunks_;
  Program program_;
};

KernelSums sum_kernels(const Program& program) {
  KernelSums sums;
  for (const Run& run : program) {
    for (const Item& item : *run.items) {
      if (item.kind != Kind::Kernel) continue;
      const double seconds = item.seconds * run.times;
      (item.sort == Sort::Product     ? sums.products
       : item.sort == Sort::Attention ? sums.attention
       : item.sort == Sort::Update    ? sums.update
                                      : sums.other) += seconds;
    }
  }
  return sums;
}

// Masters and states as a checkpoint has them, over all ranks of the mesh, which hold equal parts of them.
int64_t checkpoint_bytes(const CompiledStep& step) {
  int64_t elements = 0;
  for (const ModelTensor& tensor : step.tensors) elements += tensor.shape.elems();
  return elements * 4;
}

// What each further pass of a pipeline adds to a rank's memory: the samples that it is given before the step.
int64_t sample_bytes(const Executable& pass) {
  int64_t bytes = 0;
  for (const Binding& input : pass.inputs) {
    if (input.name.ends_with(".0"))
      bytes += (input.slice.type.bytes() + kSliceAlignment - 1) / kSliceAlignment * kSliceAlignment;
  }
  return bytes;
}

// How far off plans were that were compared with measured runs (docs/plan.md), and why this one may be
// further.
void judge(TimePlan& plan, const Config& config, const std::set<std::string>& unmeasured) {
  constexpr double kOneNode = 0.10, kManyNodes = 0.13, kUnlikeAny = 0.3;
  constexpr int kMostGpus = 3360;
  plan.error_band = plan.cluster.nodes() > 1 ? kManyNodes : kOneNode;
  if (!unmeasured.empty())
    plan.extrapolated.push_back(fmt::format(
        "{} of its kernels were not measured, such as {}; run `tandem calibrate` with this config",
        unmeasured.size(), unmeasured.begin()->substr(0, unmeasured.begin()->find(' '))));
  if (plan.cluster.is_cpu()) {
    plan.extrapolated.push_back("no plan of CPU ranks was compared on a machine of its own");
    plan.error_band = kUnlikeAny;
    return;
  }
  if (!plan.cluster.gpu.measured)
    plan.extrapolated.push_back(fmt::format(
        "no products were measured on {}: its speed is a share of the vendor's", plan.cluster.gpu.name));
  if (plan.cluster.gpus > kMostGpus)
    plan.extrapolated.push_back(fmt::format("the largest run compared had {} GPUs", kMostGpus));
  if (config.precision == Precision::Fp32) plan.extrapolated.push_back("no run in fp32 was compared");
  if (!config.model.is_language_model()) plan.extrapolated.push_back("only language models were compared");
  if (!config.memory.offload.empty()) plan.extrapolated.push_back("no run with offload was compared");
  if (!plan.extrapolated.empty()) plan.error_band = kUnlikeAny;
}

}  // namespace

Backend backend_on(const Cluster& cluster, Backend backend) {
  if (cluster.is_cpu()) return backend;
  const auto bytes = static_cast<int64_t>(cluster.gpu.memory_bytes);
  backend.memory_bytes = [bytes] { return bytes; };
  backend.has_fp8 = cluster.gpu.capability >= kFirstWithFp8 && cluster.gpu.matmul_fp8 > 0;
  backend.description = cluster.gpu.name;
  return backend;
}

CompiledRanks::CompiledRanks(const Config& config, const Backend& backend, const Cluster& cluster,
                             const PlanOptions& options)
    : config_(config), options_(options), mesh_(mesh_shape(config)) {
  if (cluster.gpus > 0) check_mesh(mesh_, cluster);
  check_precision(config, cluster);
  passes_compiled_ = options.whole
                         ? passes_per_step(config)
                         : passes_to_compile(schedule_of(config), mesh_.pipeline, passes_per_step(config));
  compile(backend, cluster);
}

void CompiledRanks::compile(const Backend& backend, const Cluster& cluster) {
  const int ranks_here = std::min(mesh_.world(), cluster.gpus_per_node);
  const auto chunks = static_cast<int>(config_.parallel.chunks);
  // Of chunks that take turns, a step of few passes does not show each alone.
  const bool can_move = chunks == 1 || passes_compiled_ >= 2 * mesh_.pipeline;
  std::vector<int> alike(static_cast<size_t>(mesh_.pipeline));
  std::iota(alike.begin(), alike.end(), 0);
  if (options_.alike_once && can_move && mesh_.pipeline > 1)
    alike = alike_stages(num_blocks(options_.model(config_.model, 1)), mesh_.pipeline, chunks);

  std::vector<MeshPosition> places;
  for (const MeshPosition& at : rank_kinds(mesh_)) {
    if (options_.only && !options_.only(at)) continue;
    // In time the ranks of a tensor axis are alike; in memory the first holds a little more or less.
    const bool at_an_end = at.pipeline == 0 || at.pipeline + 1 == mesh_.pipeline;
    if (alike[static_cast<size_t>(at.pipeline)] == at.pipeline && (at.tensor == 0 || at_an_end))
      places.push_back(at);
  }
  std::vector<CompiledStep> made(places.size());
  Config config = config_;
  std::atomic<bool> is_over = false;
  const auto compile_at = [&](size_t i) {
    if (is_over) return;
    CompileOptions options = compile_options(config, backend, places[i], ranks_here);
    if (mesh_.pipeline > 1) options.parallel.micro_batches = passes_compiled_;
    options.while_compiling = options_.while_compiling;
    made[i] = compile_config(config, options, options_.model);
    const int64_t further = mesh_.pipeline > 1 ? passes_per_step(config) - passes_compiled_ : 0;
    made[i].sizes[static_cast<size_t>(Arena::Activations)] += further * sample_bytes(made[i].pass);
    if (options_.stop_over > 0 && device_bytes(made[i].sizes) > options_.stop_over) is_over = true;
  };
  size_t begin = 0;
  if (config.memory.recompute.kind == RecomputeKind::Auto) {  // which every rank would find again
    compile_at(begin++);
    config.memory.recompute = made[0].recompute;
  }
  for_each_in_threads(begin, places.size(), options_.threads, compile_at);
  for (CompiledStep& step : made) {
    memory_bytes_ = std::max(memory_bytes_, device_bytes(step.sizes));
    host_bytes_ = std::max(host_bytes_, ranks_here * step.sizes[static_cast<size_t>(Arena::Host)]);
    if (step.position.tensor == 0) steps_.push_back(std::move(step));
  }
  for (const int first : alike) {
    const auto is_it = [&](const CompiledStep& step) { return step.position.pipeline == first; };
    step_of_.push_back(
        static_cast<size_t>(std::find_if(steps_.begin(), steps_.end(), is_it) - steps_.begin()));
  }
}

CompiledRanks::Timed CompiledRanks::simulate_passes(const Cluster& cluster, int64_t passes) const {
  std::vector<std::unique_ptr<RankProgram>> ranks;
  std::vector<Program> programs;
  for (size_t stage = 0; stage < step_of_.size(); ++stage) {
    ranks.push_back(std::make_unique<RankProgram>(steps_[step_of_[stage]], cluster, config_,
                                                  static_cast<int>(stage), passes));
    programs.push_back(ranks.back()->program());
  }
  Timed timed;
  if (cluster.is_cpu()) {
    timed.simulation = simulate_on_cores(programs, mesh_,
                                         {.cores = cluster.cores,
                                          .threads = threads_on(cluster, config_, mesh_.world()),
                                          .launch = cluster.launch,
                                          .step_overhead = cluster.step_overhead,
                                          .observe = options_.observe});
  } else {
    timed.simulation = simulate(programs, {.launch = cluster.launch,
                                           .issue = cluster.issue,
                                           .step_overhead = cluster.step_overhead,
                                           .observe = options_.observe});
  }
  const std::vector<RankTime>& times = timed.simulation.ranks;
  for (size_t i = 0; i < times.size(); ++i) {
    if (times[i].parts.bubble < times[timed.busiest].parts.bubble) timed.busiest = i;
  }
  timed.kernels = sum_kernels(programs[timed.busiest]);
  return timed;
}

// A pipeline that is full takes as long for every further round of passes: a long step is read off two
// shorter ones.
CompiledRanks::Timed CompiledRanks::simulate_all(const Cluster& cluster) const {
  const int64_t passes = passes_per_step(config_), stages = mesh_.pipeline;
  const int64_t few = 4 * stages, more = 5 * stages;
  const bool is_steady = stages > 1 && passes > 2 * more && schedule_of(config_) != PipelineSchedule::GPipe;
  if (!is_steady || options_.observe || options_.whole) return simulate_passes(cluster, passes);
  Timed begun = simulate_passes(cluster, few);
  const Timed then = simulate_passes(cluster, more);
  const double further = static_cast<double>(passes - few) / static_cast<double>(more - few);
  const auto extend = [further](double& first, double second) { first += further * (second - first); };
  extend(begun.simulation.seconds, then.simulation.seconds);
  for (size_t i = 0; i < begun.simulation.ranks.size(); ++i) {
    RankTime& rank = begun.simulation.ranks[i];
    const RankTime& second = then.simulation.ranks[i];
    for (const auto part : kTimeParts) extend(rank.parts.*part, second.parts.*part);
    extend(rank.sent.within_node, second.sent.within_node);
    extend(rank.sent.between_nodes, second.sent.between_nodes);
  }
  for (const auto sum :
       {&KernelSums::products, &KernelSums::attention, &KernelSums::update, &KernelSums::other})
    extend(begun.kernels.*sum, then.kernels.*sum);
  return begun;
}

// Kernels that a calibrated cluster does not know: what they take is an estimate.
std::set<std::string> CompiledRanks::unmeasured(const Cluster& cluster) const {
  std::set<std::string> missing;
  if (cluster.kernels.empty() && !cluster.is_cpu()) return missing;
  for (const CompiledStep& step : steps_) {
    for (const Executable* list : {&step.pass, &step.last_pass, &step.update}) {
      for (const Command& command : list->commands) {
        if (is_collective(command.op)) continue;
        std::string signature = command_signature(command);
        if (!cluster.kernels.contains(signature)) missing.insert(std::move(signature));
      }
    }
  }
  return missing;
}

TimePlan CompiledRanks::on(const Cluster& cluster) const {
  TimePlan plan;
  plan.cluster = cluster;
  plan.mesh = mesh_;
  if (plan.cluster.gpus == 0) plan.cluster.gpus = mesh_.world();
  plan.memory_bytes = memory_bytes_;
  plan.host_bytes = host_bytes_;
  const Timed timed = simulate_all(plan.cluster);
  for (size_t stage = 0; stage < step_of_.size(); ++stage) {
    const CompiledStep& step = steps_[step_of_[stage]];
    MeshPosition at = step.position;
    at.pipeline = static_cast<int>(stage);
    plan.ranks.push_back({at, step.sizes, timed.simulation.ranks[stage]});
  }
  plan.busiest = timed.busiest;
  plan.kernels = timed.kernels;
  const CompiledStep& first = steps_.front();
  plan.step_s = timed.simulation.seconds;
  const auto samples = static_cast<double>(config_.train.batch);
  const double per_sample =
      config_.model.is_language_model() ? static_cast<double>(config_.model.context) : 1;
  plan.tokens_per_s = samples * per_sample / plan.step_s;
  plan.model_flops =
      static_cast<double>(first.model_flops) * static_cast<double>(passes_per_step(config_) * mesh_.data);
  const int units =
      plan.cluster.is_cpu()
          ? std::min(plan.cluster.cores, plan.cluster.gpus * threads_on(cluster, config_, plan.cluster.gpus))
          : plan.cluster.gpus;
  plan.mfu = plan.model_flops / plan.step_s / (plan.cluster.gpu.peak * units);
  plan.num_params = first.num_params;
  plan.recompute = first.recompute;
  plan.state_bytes = checkpoint_bytes(first);
  judge(plan, config_, unmeasured(plan.cluster));
  return plan;
}

bool fits_host(const Cluster& cluster, int64_t host_bytes) {
  return cluster.host_memory <= 0 || static_cast<double>(host_bytes) <= kHostShare * cluster.host_memory;
}

int64_t node_bytes(const TimePlan& plan) {
  return plan.host_bytes + (plan.cluster.is_cpu() ? plan.memory_bytes * plan.mesh.world() : 0);
}

bool fits_device(const TimePlan& plan) {
  return plan.cluster.is_cpu() || static_cast<double>(plan.memory_bytes) <= plan.cluster.gpu.memory_bytes;
}

bool fits(const TimePlan& plan) { return fits_device(plan) && fits_host(plan.cluster, node_bytes(plan)); }

}  // namespace tandem::plan
