#include "tandem/plan/time_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "tandem/base/error.h"
#include "tandem/base/quantity.h"
#include "tandem/config/mesh.h"

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
  const bool narrow = config.precision == Precision::Bf16 || config.precision == Precision::Fp8;
  if (narrow && cluster.gpu.capability < kFirstWithBf16)
    throw ConfigError("precision: {} has no bf16; use fp16", cluster.gpu.name);
}

// What one rank's step runs, in order.
class RankProgram {
 public:
  RankProgram(const CompiledStep& step, const Cluster& cluster, int64_t micro_batches)
      : pass_(program_of(step.pass, cluster, step.position, step.micro_batches)),
        last_(program_of(step.last_pass, cluster, step.position, step.micro_batches)),
        update_(program_of(step.update, cluster, step.position, step.micro_batches)) {
    const auto passes = static_cast<int>(micro_batches / step.micro_batches);
    const int before = last_.empty() ? passes : passes - 1;
    if (before > 0) program_.push_back({&pass_, before});
    if (!last_.empty()) program_.push_back({&last_, 1});
    program_.push_back({&update_, 1});
  }
  RankProgram(const RankProgram&) = delete;
  RankProgram& operator=(const RankProgram&) = delete;

  const Program& program() const { return program_; }

 private:
  const std::vector<Item> pass_, last_, update_;
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

// How far off plans were that were compared with measured runs (docs/plan.md), and why this one may be
// further.
void judge(TimePlan& plan, const Config& config) {
  constexpr double kOneNode = 0.10, kManyNodes = 0.13, kUnlikeAny = 0.3;
  constexpr int kMostGpus = 3360;
  plan.error_band = plan.cluster.nodes() > 1 ? kManyNodes : kOneNode;
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
  const int ranks_here = std::min(mesh_.world(), cluster.gpus_per_node);
  for (const MeshPosition& at : rank_kinds(mesh_)) {
    // In time the ranks of a tensor axis are alike; in memory the first holds a little more or less.
    const bool at_an_end = at.pipeline == 0 || at.pipeline + 1 == mesh_.pipeline;
    if (at.tensor > 0 && !at_an_end) continue;
    CompileOptions compile = compile_options(config, backend, at, ranks_here);
    compile.while_compiling = options.while_compiling;
    CompiledStep step = compile_config(config, compile, options.model);
    memory_bytes_ = std::max(memory_bytes_, device_bytes(step.sizes));
    if (at.tensor == 0) steps_.push_back(std::move(step));
  }
}

TimePlan CompiledRanks::on(const Cluster& cluster) const {
  TimePlan plan;
  plan.cluster = cluster;
  plan.mesh = mesh_;
  if (plan.cluster.gpus == 0) plan.cluster.gpus = mesh_.world();
  plan.memory_bytes = memory_bytes_;
  std::vector<std::unique_ptr<RankProgram>> ranks;
  std::vector<Program> programs;
  for (const CompiledStep& step : steps_) {
    ranks.push_back(std::make_unique<RankProgram>(step, plan.cluster, config_.accumulation()));
    programs.push_back(ranks.back()->program());
  }
  const Simulation result = simulate(programs, {.launch = plan.cluster.launch,
                                                .issue = plan.cluster.issue,
                                                .step_overhead = plan.cluster.step_overhead,
                                                .observe = options_.observe});
  for (size_t i = 0; i < steps_.size(); ++i) {
    plan.ranks.push_back({steps_[i].position, steps_[i].sizes, result.ranks[i]});
    if (result.ranks[i].parts.bubble < plan.parts().bubble) plan.busiest = i;
  }
  plan.kernels = sum_kernels(programs[plan.busiest]);
  const CompiledStep& first = steps_.front();
  plan.step_s = result.seconds;
  const auto samples = static_cast<double>(config_.train.batch);
  const double per_sample =
      config_.model.is_language_model() ? static_cast<double>(config_.model.context) : 1;
  plan.tokens_per_s = samples * per_sample / plan.step_s;
  plan.model_flops =
      static_cast<double>(first.model_flops) * static_cast<double>(config_.accumulation() * mesh_.data);
  plan.mfu = plan.model_flops / plan.step_s / (plan.cluster.gpu.peak * plan.cluster.gpus);
  plan.num_params = first.num_params;
  plan.recompute = first.recompute;
  plan.state_bytes = checkpoint_bytes(first);
  judge(plan, config_);
  return plan;
}

bool fits(const TimePlan& plan) {
  return static_cast<double>(plan.memory_bytes) <= plan.cluster.gpu.memory_bytes;
}

}  // namespace tandem::plan
