#include "tandem/train/compile_config.h"

#include <algorithm>
#include <limits>

#include "tandem/base/error.h"
#include "tandem/compile/passes/recompute.h"
#include "tandem/config/mesh.h"
#include "tandem/data/loader.h"
#include "tandem/ir/loss_terms.h"
#include "tandem/models/apply_groups.h"
#include "tandem/runtime/session.h"
#include "tandem/store/store.h"
#include "tandem/train/fit.h"
#include "tandem/train/model_state.h"
#include "tandem/train/run_data.h"
#include "tandem/train/saving/memory_copies.h"
#include "tandem/train/saving/state_proof.h"

namespace tandem {

int thread_count(const Config& config, int ranks_here) {
  return config.threads > 0 ? static_cast<int>(config.threads) : std::max(1, num_cores() / ranks_here);
}

CompileOptions compile_options(const Config& config, const Backend& backend, const MeshPosition& at,
                               int ranks_here) {
  CompileOptions options;
  options.parallel = {.at = at,
                      .strategy = config.parallel.strategy,
                      .schedule = config.parallel.schedule,
                      .chunks = static_cast<int>(config.parallel.chunks),
                      .micro_batches = passes_per_step(config),
                      .reduce_once = config.parallel.sync == GradientSync::Step,
                      .reduce = config.parallel.reduce == ReduceType::Bf16 ? DType::BF16 : DType::F32,
                      .fixed_order = config.parallel.reproducible == Reproducible::Layout,
                      .offload_weights = config.memory.offloads(OffloadKind::Params),
                      .offload_optimizer = config.memory.offloads(OffloadKind::Optimizer),
                      .offloaded_activations = config.memory.offloads(OffloadKind::Activations)
                                                   ? std::numeric_limits<int64_t>::max()
                                                   : 0};
  options.ranks_here = ranks_here;
  options.mixes_images = config.data.mixup > 0;
  options.separate_documents = config.data.documents == Documents::Separate;
  options.precision = precision_policy(config.precision);
  if (config.precision == Precision::Fp16)
    options.precision.loss_scale_window = config.train.loss_scale_window;
  if (options.precision.fp8 && !backend.has_fp8)
    throw ConfigError("precision: fp8 needs a GPU of compute capability 8.9 or newer; use bf16");
  if (config.parallel.partial == PartialSums::Stored) options.precision.partial = options.precision.storage;
  if (config.memory.gradients == ReduceType::Bf16) options.precision.block_gradients = DType::BF16;
  options.optimizer = config.train.optimizer;
  options.norms_apart = !config.train.groups.empty();
  options.state_type = config.train.optimizer_state;
  options.muon_scale = config.train.adjust_lr;
  options.ema = config.train.ema;
  options.shows_ema = config.train.ema_eval;
  options.recompute = config.memory.recompute;
  if (backend.memory_bytes) options.device_memory = backend.memory_bytes();
  options.fuse = backend.fuse;
  options.fuse.gelu_again = config.memory.gelu == GeluOutput::Again;
  options.scratch = config.memory.scratch;
  // A chunk of logits, and as much again for what else the loss needs, up to what products take on a GPU.
  if (const int64_t scratch = config.memory.scratch; scratch > 0) {
    constexpr int64_t kProducts = int64_t{72} << 20;
    options.fuse.chunk_bytes = std::min(options.fuse.chunk_bytes, std::max(scratch / 2, scratch - kProducts));
  }
  options.overwrite_gradients = backend.overwrites_gradients;
  options.choose = choose_from(backend, thread_count(config, ranks_here));
  return options;
}

HostLayout host_layout(const Config& config, const CompiledStep& step) {
  HostLayout layout;
  const SampleSpec spec = sample_spec(config);
  layout.train_ring = loader_bytes(spec, train_loader_options(config));
  SampleSpec evaluated = spec;
  evaluated.mixed = false;
  layout.eval_ring = loader_bytes(evaluated, eval_loader_options(config));
  // A run that saves only when it is interrupted does so without a copy.
  const bool staged =
      config.checkpoint.async && (config.checkpoint.every.saves() || config.checkpoint.minutes > 0);
  layout.staging = staged ? state_staging_bytes(step) : 0;
  // A step that is taken twice begins from a copy there.
  if (config.checkpoint.replay > 0) layout.staging = std::max(layout.staging, StateProof::memory_bytes(step));
  if (!config.checkpoint.store.empty())
    layout.upload = writer_memory(config.checkpoint.store, state_staging_bytes(step));
  return layout;
}

std::vector<MeshPosition> rank_kinds(const MeshShape& mesh) {
  std::vector<MeshPosition> kinds;
  for (int pipeline = 0; pipeline < mesh.pipeline; ++pipeline) {
    for (int tensor = 0; tensor < std::min(mesh.tensor, 2); ++tensor)
      kinds.push_back({mesh, 0, tensor, pipeline});
  }
  return kinds;
}

namespace {

// Not asked of a forward alone, which may be of a checkpoint from another machine.
void check_gradients(const CompileOptions& options) {
  if (options.precision.block_gradients == DType::F32) return;
  const ParallelOptions& parallel = options.parallel;
  const auto refuse = [](std::string_view why) {
    throw ConfigError("memory.gradients: bf16 {}; use fp32", why);
  };
  if (options.precision.storage != options.precision.block_gradients)
    refuse("needs precision bf16 or fp8: gradients are made in the type of the weights");
  if (!options.overwrite_gradients) refuse("needs a GPU: the CPU's kernels add to gradients, in fp32");
  if (options.may_overwrite_gradients()) return;
  if (parallel.micro_batches > 1 && parallel.at.shape.data == 1)
    refuse(
        "would add up several passes in 16 bits: make a step one pass (train.micro_batch = train.batch), "
        "or use more ranks on the data axis, which add up in fp32");
  if (parallel.micro_batches > 1)
    refuse("would add up several passes in 16 bits with parallel.sync: step; use parallel.sync: pass");
  refuse("needs the pass overwrite_gradients, which was left out");
}

void check_fp8(const CompileOptions& options) {
  if (!options.precision.fp8 || !options.parallel.offload_weights) return;
  throw ConfigError(
      "precision: fp8 makes the weights' scales on the GPU, and memory.offload: [params] keeps them in host "
      "memory; use bf16, or offload the optimizer only");
}

void add_loss_terms(const TrainConfig& train, Graph& forward) {
  for (int32_t id = 0; id < forward.num_nodes(); ++id) {
    if (forward.node(id).op != Op::CrossEntropy) continue;
    write_loss_terms({.smoothing = train.label_smoothing, .z = train.z_loss}, forward.node(id).attrs);
  }
}

void seed_dropout(int64_t seed, Graph& forward) {
  for (int32_t id = 0; id < forward.num_nodes(); ++id) {
    if (forward.node(id).op == Op::Dropout) forward.node(id).attrs.set("seed", seed);
  }
}

// The cheapest recomputation with which every rank fits. Each rank finds the same one: recomputation repeats
// collectives, so they must all make the same choice.
Recompute resolve_auto(const Config& config, const CompileOptions& options, const Graph& forward) {
  constexpr int64_t kStagingDiffers = 16 << 10;  // along the data axis
  const int64_t limit =
      memory_limit(config, options) - (options.parallel.at.shape.data > 1 ? kStagingDiffers : 0);
  Recompute smallest;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const Recompute& choice : recompute_candidates(forward)) {
    int64_t need = 0;
    for (const MeshPosition& at : rank_kinds(options.parallel.at.shape)) {
      CompileOptions other = options;
      other.parallel.at = at;
      other.recompute = choice;
      other.observe = nullptr;
      need = std::max(need, counted_bytes(compile_step(forward, other).sizes, options));
      if (need > limit && need >= least) break;
    }
    if (need <= limit) return choice;
    if (need < least) smallest = choice;
    least = std::min(least, need);
  }
  return smallest;
}

Graph forward_of(const Config& config, const BuildModel& model) {
  Graph forward = model(config.model, config.train.micro_batch);
  add_loss_terms(config.train, forward);
  apply_groups(config.train.groups, forward);
  seed_dropout(config.train.seed, forward);
  return forward;
}

}  // namespace

namespace {

// Of a micro-batch, what waits on the host for backward.
int64_t offloaded_activations(const CompiledStep& step) {
  int64_t bytes = 0;
  for (const Command& command : step.pass.commands) {
    const bool goes_out =
        command.op == Op::Copy && command.phase == Phase::Forward && command.out.front().arena == Arena::Host;
    if (goes_out) bytes += command.out.front().type.bytes();
  }
  return bytes / step.micro_batches;
}

// As many activations go to the host as it has memory for: all, or so many eighths of their bytes.
CompiledStep compile_for_host(const Graph& forward, CompileOptions options) {
  CompiledStep step = compile_step(forward, options);
  if (options.parallel.offloaded_activations == 0) return step;
  const int64_t limit = host_limit(options), all = offloaded_activations(step);
  for (int eighths = 7; eighths >= 0 && step.sizes[static_cast<size_t>(Arena::Host)] > limit; --eighths) {
    options.parallel.offloaded_activations = all / 8 * eighths;
    step = compile_step(forward, options);
  }
  return step;
}

}  // namespace

// What each of those ranks has follows from its own step.
int64_t kept_bytes(const Config& config, const CompileOptions& options, const BuildModel& model) {
  if (config.checkpoint.memory == 0) return 0;
  const Graph forward = forward_of(config, model);
  const MeshShape& shape = options.parallel.at.shape;
  std::vector<PartSize> parts;
  for (const int rank : kept_ranks(options.parallel.at.rank(), shape.world(), options.ranks_here)) {
    CompileOptions other = options;
    other.parallel.at = MeshPosition::of(shape, rank);
    other.recompute = {};
    other.observe = nullptr;
    parts.push_back(part_size(compile_step(forward, other)));
  }
  return kKeptFiles * KeptLayout(parts).bytes();
}

CompiledStep compile_config(const Config& config, CompileOptions options, const BuildModel& model) {
  check_gradients(options);
  check_fp8(options);
  const Graph forward = forward_of(config, model);
  const int64_t kept = kept_bytes(config, options, model);
  options.host_bytes = [&config, kept](const CompiledStep& step) {
    return host_layout(config, step).total() + kept;
  };
  if (options.recompute.kind == RecomputeKind::Auto)
    options.recompute = resolve_auto(config, options, forward);
  return compile_for_host(forward, options);
}

}  // namespace tandem
