#include "tandem/config/validate_parallel.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "tandem/base/error.h"
#include "tandem/config/enum_names.h"
#include "tandem/config/mesh.h"
#include "tandem/config/place.h"

namespace tandem {
namespace {

void check_world(const ResolvedConfig& resolved) {
  const ParallelConfig& parallel = resolved.config.parallel;
  int64_t room = kMaxRanks;
  for (int64_t size : {parallel.data, parallel.tensor, parallel.pipeline}) room /= size;
  if (room > 0) return;
  throw ConfigError("{}: a mesh has at most {} ranks, found {} * {} * {}; use smaller axes",
                    place_of_first(resolved, {"parallel.data", "parallel.tensor", "parallel.pipeline"}),
                    kMaxRanks, parallel.data, parallel.tensor, parallel.pipeline);
}

// Every rank of the tensor axis takes as many heads, hidden features and rows. The vocabulary is padded.
void check_tensor(const ResolvedConfig& resolved) {
  const ModelConfig& model = resolved.config.model;
  const int64_t tensor = resolved.config.parallel.tensor;
  if (tensor == 1) return;
  const std::string place = place_of_first(resolved, {"parallel.tensor"});
  if (!model.is_language_model()) {
    throw ConfigError(
        "{}: parallel.tensor splits gpt2 and llama only, found model.family {}; use parallel.tensor = 1 and "
        "the data axis",
        place, name_of(model.family));
  }
  if (model.qk_norm == QkNorm::All) {
    throw ConfigError(
        "{}: model.qk_norm all takes the norm of all heads together, which parallel.tensor splits; use "
        "parallel.tensor = 1 and the data axis",
        place);
  }
  const std::pair<std::string_view, int64_t> wholes[] = {
      {"model.heads", model.heads},
      {"model.kv_heads", model.num_kv_heads()},
      {"model.ffn", model.ffn_width()},
      {"train.micro_batch * model.context", resolved.config.train.micro_batch * model.context},
  };
  int64_t divisor = 0;  // of all of them
  for (const auto& [key, whole] : wholes) divisor = std::gcd(divisor, whole);
  for (const auto& [key, whole] : wholes) {
    if (whole % tensor == 0) continue;
    throw ConfigError(
        "{}: parallel.tensor must divide {}, and {} does not divide {}; use parallel.tensor = {}", place, key,
        tensor, whole, nearest_divisors(divisor, tensor));
  }
}

// The nearest way to cut the blocks: fewer chunks, then fewer stages.
std::string nearest_cut(const ParallelConfig& parallel, int64_t blocks) {
  if (parallel.chunks > 1 && blocks / parallel.pipeline > 1)
    return fmt::format("parallel.chunks = {}", blocks / parallel.pipeline);
  if (parallel.chunks > 1 && blocks >= parallel.pipeline)
    return "parallel.chunks = 1 and parallel.schedule = 1f1b";
  return fmt::format("parallel.pipeline = {}", std::max<int64_t>(blocks / parallel.chunks, 1));
}

void check_interleaved(const ResolvedConfig& resolved) {
  const Config& config = resolved.config;
  const ParallelConfig& parallel = config.parallel;
  if (parallel.chunks == 1) {
    throw ConfigError(
        "{}: parallel.schedule interleaved needs parallel.chunks of at least 2, found 1; use "
        "{}parallel.schedule = 1f1b",
        place_of_first(resolved, {"parallel.schedule"}),
        num_blocks(config.model) >= 2 * parallel.pipeline ? "parallel.chunks = 2 or " : "");
  }
  const int64_t passes = passes_per_step(config);
  if (passes % parallel.pipeline == 0) return;
  const int64_t unit = config.train.micro_batch * parallel.data;
  const int64_t below = passes / parallel.pipeline * parallel.pipeline;
  const int64_t smaller = largest_micro_batch(config, config.train.micro_batch);
  throw ConfigError(
      "{}: parallel.schedule interleaved needs passes (train.batch / (train.micro_batch * parallel.data)) in "
      "multiples of parallel.pipeline = {}, found {} / ({} * {}) = {}; use {}train.batch = {}",
      place_of_first(resolved, {"parallel.schedule"}), parallel.pipeline, config.train.batch,
      config.train.micro_batch, parallel.data, passes,
      smaller > 0 ? fmt::format("train.micro_batch = {}, or ", smaller) : "",
      either(below * unit, (below + parallel.pipeline) * unit));
}

void check_pipeline(const ResolvedConfig& resolved) {
  const ModelConfig& model = resolved.config.model;
  const ParallelConfig& parallel = resolved.config.parallel;
  if (parallel.pipeline == 1) return;  // schedule and chunks wait for a pipeline
  if (parallel.chunks > 1 && parallel.schedule != PipelineSchedule::Interleaved) {
    throw ConfigError(
        "{}: parallel.schedule {} needs parallel.chunks = 1, found {}; use parallel.schedule = interleaved "
        "or parallel.chunks = 1",
        place_of_first(resolved, {"parallel.chunks"}), name_of(parallel.schedule), parallel.chunks);
  }
  const int64_t blocks = num_blocks(model);
  if (parallel.pipeline * parallel.chunks > blocks) {
    throw ConfigError(
        "{}: parallel.pipeline * parallel.chunks = {} * {} = {} parts need a block each, and {} makes {}; "
        "use {}",
        place_of_first(resolved, {"parallel.pipeline"}), parallel.pipeline, parallel.chunks,
        parallel.pipeline * parallel.chunks, model.has(kStages) ? "model.blocks" : "model.layers", blocks,
        nearest_cut(parallel, blocks));
  }
  if (parallel.schedule == PipelineSchedule::Interleaved) check_interleaved(resolved);
}

void check_offload(const ResolvedConfig& resolved) {
  const Config& config = resolved.config;
  const Strategy strategy = config.parallel.strategy;
  const bool params = config.memory.offloads(OffloadKind::Params);
  const OptimizerEntry& optimizer = optimizer_entry(config.train.optimizer);
  const bool stays = optimizer.granularity == Granularity::Tensor || optimizer.averages;
  const bool state = params || config.memory.offloads(OffloadKind::Optimizer);
  if (stays && state) {
    throw ConfigError("{}: {} cannot be offloaded; choose another train.optimizer, or remove memory.offload",
                      place_of(resolved, "memory.offload"), optimizer.name);
  }
  if (strategy == Strategy::Dp && !config.memory.offload.empty()) {
    throw ConfigError("{}: parallel.strategy dp offloads nothing; use parallel.strategy = {}",
                      place_of(resolved, "memory.offload"), params ? "fsdp" : "ddp");
  }
  if (params && strategy != Strategy::Fsdp) {
    throw ConfigError(
        "{}: only parallel.strategy fsdp brings parameters in as they are needed, found {}; use "
        "parallel.strategy = fsdp or memory.offload = [optimizer]",
        place_of(resolved, "memory.offload"), name_of(strategy));
  }
}

void check_strategy(const ResolvedConfig& resolved) {
  const ParallelConfig& parallel = resolved.config.parallel;
  if (parallel.strategy == Strategy::Single && parallel.data > 1) {
    throw ConfigError(
        "{}: parallel.strategy single keeps one replica and needs parallel.data = 1, found {}; use "
        "parallel.strategy = ddp",
        place_of_first(resolved, {"parallel.data"}), parallel.data);
  }
  if (parallel.strategy != Strategy::Dp) return;
  for (const auto& [key, size] :
       {std::pair{"parallel.tensor", parallel.tensor}, std::pair{"parallel.pipeline", parallel.pipeline}}) {
    if (size == 1) continue;
    throw ConfigError(
        "{}: parallel.strategy dp is one process with the data axis only and needs {} = 1, found {}; use "
        "parallel.strategy = ddp",
        place_of_first(resolved, {key}), key, size);
  }
}

// Reducing once a step needs a place for the whole gradient between passes.
void check_sync(const ResolvedConfig& resolved) {
  const ParallelConfig& parallel = resolved.config.parallel;
  if (parallel.sync == GradientSync::Pass) return;
  const std::string place = place_of_first(resolved, {"parallel.sync"});
  if (parallel.strategy == Strategy::Zero2 || parallel.strategy == Strategy::Fsdp) {
    throw ConfigError(
        "{}: parallel.strategy {} keeps only its part of a gradient and reduces after every pass; use "
        "parallel.sync = pass, or parallel.strategy = zero1",
        place, name_of(parallel.strategy));
  }
  if (parallel.pipeline > 1) {
    throw ConfigError("{}: a pipeline reduces after every pass; use parallel.sync = pass", place);
  }
}

// Whoever computes a micro-batch, its gradients are the same bits; what is made of all of them must be, too.
void check_layout(const ResolvedConfig& resolved) {
  const Config& config = resolved.config;
  const ParallelConfig& parallel = config.parallel;
  if (parallel.reproducible != Reproducible::Layout) return;
  const auto refuse = [&](std::string_view key, const std::string& why) {
    throw ConfigError("{}: parallel.reproducible layout {}", place_of(resolved, key), why);
  };
  if (parallel.pipeline > 1) refuse("parallel.pipeline", "knows no pipeline yet; use parallel.pipeline = 1");
  if (parallel.sync == GradientSync::Step)
    refuse("parallel.sync", "adds up gradients after every pass; use parallel.sync = pass");
  if (parallel.reduce == ReduceType::Bf16)
    refuse("parallel.reduce", "adds up gradients as they were made; use parallel.reduce = fp32");
  if (config.precision == Precision::Fp8) refuse("precision", "cannot share fp8's scales; use bf16");
  if (const OptimizerEntry& entry = optimizer_entry(config.train.optimizer);
      entry.granularity != Granularity::Element)
    refuse("train.optimizer", fmt::format("needs an optimizer that works on each weight alone, and {} does "
                                          "not; use adamw",
                                          entry.name));
}

void check_elastic(const ResolvedConfig& resolved) {
  const ParallelConfig& parallel = resolved.config.parallel;
  if (parallel.elastic != Elastic::Data) return;
  if (parallel.strategy == Strategy::Single || parallel.strategy == Strategy::Dp) {
    throw ConfigError(
        "{}: parallel.elastic needs ranks that share the batch, and parallel.strategy {} has one "
        "process; use parallel.strategy = ddp, zero1, zero2 or fsdp",
        place_of(resolved, "parallel.elastic"), name_of(parallel.strategy));
  }
}

// Batch norm makes statistics of the samples that a rank has.
void check_dealt(const ResolvedConfig& resolved) {
  const Config& config = resolved.config;
  if (!deals_micro_batches(config)) return;
  const bool layout = config.parallel.reproducible == Reproducible::Layout;
  const std::string_view key = layout ? "parallel.reproducible" : "parallel.elastic";
  if (config.model.has(kStages) && config.model.norm != ImageNorm::Group) {
    throw ConfigError(
        "{}: {} needs a model whose samples do not depend on each other; use model.norm = group",
        place_of(resolved, "model.norm"), key);
  }
  if (!was_given(resolved, "train.micro_batch")) {
    throw ConfigError(
        "{}: needs train.micro_batch, which by default follows from the number of ranks; set it to the "
        "samples "
        "that a rank takes at once",
        place_of(resolved, key));
  }
}

}  // namespace

// The strategy comes last: the one that is named instead then works with all the rest.
void validate_parallel(const ResolvedConfig& resolved) {
  check_world(resolved);
  check_tensor(resolved);
  check_pipeline(resolved);
  check_offload(resolved);
  check_strategy(resolved);
  check_sync(resolved);
  check_layout(resolved);
  check_elastic(resolved);
  check_dealt(resolved);
}

}  // namespace tandem
