// What to change when a run does not fit: candidates in the order of what they cost the user, each compiled
// and measured like the run itself, so that the change that is named is one that works.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "tandem/base/error.h"
#include "tandem/base/system.h"
#include "tandem/base/units.h"
#include "tandem/compile/recompute.h"
#include "tandem/config/mesh.h"
#include "tandem/train/compile_config.h"

namespace tandem {
namespace {

// What a config needs: with its staging copy for asynchronous checkpoints, and without.
struct Need {
  int64_t async;
  int64_t sync;
};

// From cheap to dear: synchronous checkpoints (a pause at each save), more recomputation (arithmetic),
// smaller micro-batches (less efficient products), and their combinations.
class Search {
 public:
  Search(const Config& config, const Backend& backend, const BuildModel& model, const CompiledStep& step,
         int ranks_here, const std::function<void()>& while_compiling)
      : config_(config),
        backend_(backend),
        model_(model),
        at_(step.position),
        ranks_here_(ranks_here),
        while_compiling_(while_compiling) {
    recomputes_ = {config.memory.recompute};
    for (const Recompute& choice : recompute_candidates(num_blocks(model(config.model, 1)))) {
      if (choice != config.memory.recompute) recomputes_.push_back(choice);
    }
    for (int64_t size = config.train.micro_batch; size >= 1; --size) {
      if (suits_mesh(config, size)) sizes_.push_back(size);
    }
  }

  int64_t smallest() const { return least(smallest_micro_batch()); }
  // The one with the smallest plan: where a step of one pass needs no memory for gradients, that may be the
  // largest.
  int64_t smallest_micro_batch() const {
    return least(sizes_.front()) <= least(sizes_.back()) ? sizes_.front() : sizes_.back();
  }

  struct Change {
    std::string flags;  // "--set memory.recompute=full"
    int64_t bytes;
  };
  std::optional<Change> cheapest(int64_t limit) const {
    if (smallest() > limit) return std::nullopt;
    for (int64_t size : sizes_) {
      if (least(size) > limit) continue;
      for (const Recompute& choice : recomputes_) {
        const Need bytes = need(size, choice);
        if (bytes.async <= limit) return Change{flags(size, choice, config_.checkpoint.async), bytes.async};
        if (bytes.sync <= limit) return Change{flags(size, choice, false), bytes.sync};
      }
    }
    return std::nullopt;
  }

 private:
  // The smallest plan with this micro-batch: full recomputation's, or, with very few blocks, selective's.
  int64_t least(int64_t size) const {
    return std::min(need(size, {RecomputeKind::Full, 0}).sync,
                    need(size, {RecomputeKind::Selective, 0}).sync);
  }

  Need need(int64_t size, const Recompute& choice) const {
    Config config = config_;
    config.train.micro_batch = size;
    config.memory.recompute = choice;
    config.memory.gradients = gradients(size);
    std::vector<MeshPosition> ranks = rank_kinds(at_.shape);
    ranks.push_back(at_);
    Need most{0, 0};  // of all ranks: what is named must work on each
    for (const MeshPosition& rank : ranks) {
      CompileOptions options = compile_options(config, backend_, rank, ranks_here_);
      options.while_compiling = while_compiling_;
      const CompiledStep step = compile_config(config, options, model_);
      const int64_t total = counted_bytes(step.sizes, options);
      const bool staging_counts = options.device_memory == 0;
      most.async = std::max(most.async, total);
      most.sync = std::max(most.sync, total - (staging_counts ? host_layout(config, step).staging : 0));
    }
    return most;
  }

  // Several passes add to gradients, which takes fp32.
  ReduceType gradients(int64_t size) const {
    return size == config_.train.micro_batch ? config_.memory.gradients : ReduceType::Fp32;
  }

  std::string flags(int64_t size, const Recompute& choice, bool async) const {
    std::vector<std::string> list;
    if (async != config_.checkpoint.async) list.push_back("--set checkpoint.async=false");
    if (choice != config_.memory.recompute)
      list.push_back("--set memory.recompute=" + recompute_name(choice));
    if (size != config_.train.micro_batch) list.push_back(fmt::format("--set train.micro_batch={}", size));
    if (gradients(size) != config_.memory.gradients) list.push_back("--set memory.gradients=fp32");
    return fmt::format("{}", fmt::join(list, " "));
  }

  const Config& config_;
  const Backend& backend_;
  const BuildModel& model_;
  const MeshPosition at_;
  const int ranks_here_;
  const std::function<void()>& while_compiling_;
  std::vector<Recompute> recomputes_;  // the config's own first, then the others, cheap ones first
  std::vector<int64_t> sizes_;         // of micro-batches, likewise
};

}  // namespace

int64_t memory_limit(const Config& config, const CompileOptions& options) {
  if (config.memory.limit > 0) return config.memory.limit;
  return options.device_memory > 0 ? options.device_memory : total_memory_bytes() / options.ranks_here;
}

int64_t counted_bytes(const ArenaSizes& sizes, const CompileOptions& options) {
  return options.device_memory > 0 ? device_bytes(sizes) : total_bytes(sizes);
}

namespace {

// A device that is there: a plan for one that is not is held against nothing of this machine.
bool has_own_memory(const CompileOptions& options) {
  return options.device_memory > 0 && options.device_memory < std::numeric_limits<int64_t>::max();
}

}  // namespace

void require_fit(const Config& config, const Backend& backend, const CompiledStep& step,
                 const BuildModel& model, int ranks_here, const std::function<void()>& while_compiling) {
  const CompileOptions options = compile_options(config, backend, step.position, ranks_here);
  const int64_t limit = memory_limit(config, options), needed = counted_bytes(step.sizes, options);
  const int64_t host = step.sizes[static_cast<size_t>(Arena::Host)];
  const int64_t machine = total_memory_bytes() / ranks_here;
  if (has_own_memory(options) && host > machine) {
    throw PlanError(
        "memory: the plan needs {} of the host's memory but this machine has {} a rank; offload less, or set "
        "checkpoint.async=false",
        format_bytes(host), format_bytes(machine));
  }
  if (needed <= limit) return;
  const std::string source = config.memory.limit > 0     ? "memory.limit"
                             : options.device_memory > 0 ? "the GPU's memory"
                                                         : "this machine's memory";
  const Search search(config, backend, model, step, ranks_here, while_compiling);
  if (const auto change = search.cheapest(limit)) {
    throw PlanError("memory: the plan needs {} but {} is {}; the cheapest change that fits is {} ({})",
                    format_bytes(needed), source, format_bytes(limit), change->flags,
                    format_bytes(change->bytes));
  }
  throw PlanError(
      "memory: the plan needs {} but {} is {}; recomputation and micro-batches of {} still need {}: use a "
      "smaller model, precision=bf16, parallel.strategy=fsdp on more ranks, or more memory",
      format_bytes(needed), source, format_bytes(limit), search.smallest_micro_batch(),
      format_bytes(search.smallest()));
}

}  // namespace tandem
