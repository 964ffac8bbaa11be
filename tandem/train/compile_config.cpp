#include "tandem/train/compile_config.h"

#include <algorithm>

#include "tandem/data/loader.h"
#include "tandem/runtime/session.h"
#include "tandem/train/model_state.h"
#include "tandem/train/run_data.h"

namespace tandem {

int thread_count(const Config& config, int ranks_here) {
  return config.threads > 0 ? static_cast<int>(config.threads) : std::max(1, num_cores() / ranks_here);
}

namespace {

bool offloads(const Config& config, OffloadKind kind) {
  return std::find(config.memory.offload.begin(), config.memory.offload.end(), kind) !=
         config.memory.offload.end();
}

}  // namespace

CompileOptions compile_options(const Config& config, const Backend& backend, const MeshPosition& at,
                               int ranks_here) {
  CompileOptions options;
  options.parallel = {.at = at,
                      .strategy = config.parallel.strategy,
                      .schedule = config.parallel.schedule,
                      .chunks = static_cast<int>(config.parallel.chunks),
                      .micro_batches = config.accumulation(),
                      .reduce_once = config.parallel.sync == GradientSync::Step,
                      .reduce = config.parallel.reduce == ReduceType::Bf16 ? DType::BF16 : DType::F32,
                      .offload_weights = offloads(config, OffloadKind::Params),
                      .offload_optimizer = offloads(config, OffloadKind::Optimizer)};
  options.ranks_here = ranks_here;
  options.precision = precision_policy(config.precision);
  options.optimizer = config.train.optimizer;
  options.recompute = config.memory.recompute;
  options.choose = choose_from(backend.kernels, thread_count(config, ranks_here));
  return options;
}

HostLayout host_layout(const Config& config, const CompiledStep& step) {
  HostLayout layout;
  const SampleSpec spec = sample_spec(config.model);
  layout.train_ring = loader_bytes(spec, train_loader_options(config));
  layout.eval_ring = loader_bytes(spec, eval_loader_options(config));
  // A run that saves only when it is interrupted does so without a copy.
  const bool staged = config.checkpoint.async && config.checkpoint.every > 0;
  layout.staging = staged ? state_staging_bytes(step) : 0;
  return layout;
}

CompiledStep compile_config(const Config& config, CompileOptions options, const BuildModel& model) {
  const Graph forward = model(config.model, config.train.micro_batch);
  if (options.recompute.kind != RecomputeKind::Auto) {
    CompiledStep step = compile_step(forward, options);
    step.sizes[static_cast<size_t>(Arena::Host)] += host_layout(config, step).total();
    return step;
  }
  // What `auto` must fit includes the host arena, whose size no recomputation changes.
  CompileOptions plain = options;
  plain.recompute = {};
  plain.observe = nullptr;
  options.host_bytes = host_layout(config, compile_step(forward, plain)).total();
  options.limit = memory_limit(config, options.ranks_here);
  return compile_step(forward, options);
}

}  // namespace tandem
