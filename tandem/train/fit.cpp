#include "tandem/train/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <tuple>

#include "tandem/base/error.h"
#include "tandem/base/quantity.h"
#include "tandem/base/system.h"
#include "tandem/compile/passes/recompute.h"
#include "tandem/config/mesh.h"
#include "tandem/train/run_data.h"

namespace tandem {
namespace {

// What a config needs: with its staging copy for asynchronous checkpoints, and without.
struct Need {
  int64_t async = std::numeric_limits<int64_t>::max();
  int64_t sync = std::numeric_limits<int64_t>::max();
  bool mostly_activations = false;  // rather than the model's state
};

// Blocks that a search may compile, some tens of seconds' worth, once it knows whether anything fits at all.
constexpr int64_t kMostBlocks = 16384;

// With as many batches ahead as are ever of use, where those of the config take a good part of the memory.
Config with_little_prefetch(Config config, int64_t limit) {
  constexpr int64_t kEnough = 4;
  const auto ring = [&] { return loader_bytes(sample_spec(config), train_loader_options(config)); };
  const int64_t given = config.data.prefetch, bytes = ring();
  config.data.prefetch = std::min(given, kEnough);
  if (bytes - ring() < limit / 20) config.data.prefetch = given;
  return config;
}

// From cheap to dear: batches prepared ahead, synchronous checkpoints (a pause at each save), more
// recomputation (arithmetic), smaller micro-batches (less efficient products), and their combinations. Plans
// shrink along each list, so that halving it finds the first that fits.
class Search {
 public:
  Search(const Config& config, const Backend& backend, const BuildModel& model, const CompiledStep& step,
         int ranks_here, const std::function<void()>& while_compiling, int64_t limit)
      : given_(config),
        config_(with_little_prefetch(config, limit)),
        backend_(backend),
        model_(model),
        at_(step.position),
        ranks_here_(ranks_here),
        while_compiling_(while_compiling),
        blocks_(std::max<int64_t>(1, num_blocks(model(config.model, 1)))),
        limit_(limit) {
    for (const Recompute& choice : recompute_candidates(model(config.model, 1))) {
      if (choice != config.memory.recompute) recomputes_.push_back(choice);
    }
    for (int64_t size = config.train.micro_batch; size >= 1; --size) {
      if (suits_mesh(config, size) && (sizes_.empty() || cost(size) <= kMostBlocks)) sizes_.push_back(size);
    }
  }

  int64_t smallest() { return least(smallest_micro_batch()).sync; }
  bool smallest_is_mostly_activations() { return least(smallest_micro_batch()).mostly_activations; }
  // The one with the smallest plan: where a step of one pass needs no memory for gradients, that may be the
  // largest.
  int64_t smallest_micro_batch() {
    return least(sizes_.front()).sync <= least(sizes_.back()).sync ? sizes_.front() : sizes_.back();
  }

  struct Change {
    std::string flags;  // "--set memory.recompute=full"
    int64_t bytes;
  };
  std::optional<Change> cheapest() {
    if (smallest() > limit_) return std::nullopt;
    blocks_left_ = kMostBlocks;
    for (size_t i = first_size(); i < sizes_.size() && blocks_left_ > 0; ++i) {
      if (const auto change = cheapest_with(sizes_[i]); change && fits_everywhere(*change))
        return change->change;
    }
    // The smallest, which may not be the cheapest.
    for (const RecomputeKind kind : {RecomputeKind::Selective, RecomputeKind::Full}) {
      const auto change = taken(smallest_micro_batch(), {kind, 0});
      if (change && fits_everywhere(*change)) return change->change;
    }
    return std::nullopt;
  }

 private:
  struct Found {
    Change change;
    int64_t size;
    Recompute recompute;
    bool async;
  };

  size_t first_size() {
    if (least(sizes_.front()).sync <= limit_) return 0;
    const auto found = std::partition_point(sizes_.begin() + 1, sizes_.end(),
                                            [&](int64_t size) { return least(size).sync > limit_; });
    return static_cast<size_t>(found - sizes_.begin());
  }

  std::optional<Found> cheapest_with(int64_t size) {
    if (const auto own = taken(size, config_.memory.recompute)) return own;
    // Nothing and selective recomputation stand apart; then more and more blocks are computed again.
    const auto more = std::find_if(recomputes_.begin(), recomputes_.end(), [](const Recompute& choice) {
      return choice.kind != RecomputeKind::None && choice.kind != RecomputeKind::Selective;
    });
    for (auto it = recomputes_.begin(); it != more; ++it) {
      if (const auto found = taken(size, *it)) return found;
    }
    const auto first = std::partition_point(
        more, recomputes_.end(), [&](const Recompute& choice) { return need(size, choice).sync > limit_; });
    return first == recomputes_.end() ? std::nullopt : taken(size, *first);
  }

  std::optional<Found> taken(int64_t size, const Recompute& choice) {
    const Need bytes = need(size, choice);
    const bool async = config_.checkpoint.async && bytes.async <= limit_;
    const int64_t total = async ? bytes.async : bytes.sync;
    if (total > limit_) return std::nullopt;
    return Found{{flags(size, choice, async), total}, size, choice, async};
  }

  // What is named must work on every rank.
  bool fits_everywhere(const Found& found) {
    for (const MeshPosition& rank : rank_kinds(at_.shape)) {
      if (rank.rank() == at_.rank()) continue;
      const Need bytes = need(found.size, found.recompute, rank);
      if ((found.async ? bytes.async : bytes.sync) > limit_) return false;
    }
    return true;
  }

  // The smallest plan with this micro-batch: full recomputation's, or, with very few blocks, selective's.
  Need least(int64_t size, const MeshPosition& rank) {
    const Need full = need(size, {RecomputeKind::Full, 0}, rank);
    const Need some = need(size, {RecomputeKind::Selective, 0}, rank);
    return some.sync < full.sync ? some : full;
  }
  Need least(int64_t size) { return least(size, at_); }

  // `auto` takes what is smallest, where nothing else fits.
  Need need(int64_t size, const Recompute& choice, const MeshPosition& rank) {
    if (choice.kind == RecomputeKind::Auto) return least(size, rank);
    const auto key = std::make_tuple(size, recompute_name(choice), rank.rank());
    if (const auto known = needs_.find(key); known != needs_.end()) return known->second;
    if (blocks_left_ <= 0) return {};
    blocks_left_ -= cost(size);
    return needs_[key] = compiled(size, choice, rank);
  }
  Need need(int64_t size, const Recompute& choice) { return need(size, choice, at_); }

  // Blocks that are compiled: those of a pipeline rank for every pass.
  int64_t cost(int64_t size) const {
    if (at_.shape.pipeline == 1) return blocks_;
    return std::max<int64_t>(1, blocks_ / at_.shape.pipeline) * config_.train.batch / (size * at_.shape.data);
  }

  Need compiled(int64_t size, const Recompute& choice, const MeshPosition& rank) const {
    Config config = config_;
    config.train.micro_batch = size;
    config.memory.recompute = choice;
    config.memory.gradients = gradients(size);
    CompileOptions options = compile_options(config, backend_, rank, ranks_here_);
    options.while_compiling = while_compiling_;
    const CompiledStep step = compile_config(config, options, model_);
    const int64_t total = counted_bytes(step.sizes, options);
    const bool staging_counts = options.device_memory == 0;
    const auto bytes = [&](Arena arena) { return step.sizes[static_cast<size_t>(arena)]; };
    const int64_t state =
        bytes(Arena::Weights) + bytes(Arena::Master) + bytes(Arena::Gradients) + bytes(Arena::Optimizer);
    return {total, total - (staging_counts ? host_layout(config, step).staging : 0),
            bytes(Arena::Activations) > state};
  }

  // Several passes add to gradients, which takes fp32.
  ReduceType gradients(int64_t size) const {
    return size == config_.train.micro_batch ? config_.memory.gradients : ReduceType::Fp32;
  }

  std::string flags(int64_t size, const Recompute& choice, bool async) const {
    std::vector<std::string> list;
    if (config_.data.prefetch != given_.data.prefetch)
      list.push_back(fmt::format("--set data.prefetch={}", config_.data.prefetch));
    if (async != config_.checkpoint.async) list.push_back("--set checkpoint.async=false");
    if (choice != config_.memory.recompute)
      list.push_back("--set memory.recompute=" + recompute_name(choice));
    if (size != config_.train.micro_batch) list.push_back(fmt::format("--set train.micro_batch={}", size));
    if (gradients(size) != config_.memory.gradients) list.push_back("--set memory.gradients=fp32");
    return fmt::format("{}", fmt::join(list, " "));
  }

  const Config& given_;
  const Config config_;
  const Backend& backend_;
  const BuildModel& model_;
  const MeshPosition at_;
  const int ranks_here_;
  const std::function<void()>& while_compiling_;
  const int64_t blocks_;
  const int64_t limit_;
  int64_t blocks_left_ = std::numeric_limits<int64_t>::max();
  std::vector<Recompute> recomputes_;  // without the config's own, cheap ones first
  std::vector<int64_t> sizes_;         // of micro-batches, the config's own first
  std::map<std::tuple<int64_t, std::string, int>, Need> needs_;
};

// What would help where no recomputation and no micro-batch does, the most to the point first.
std::string other_ways(const Config& config, bool mostly_activations, bool has_own_memory) {
  std::vector<std::string> ways;
  if (mostly_activations)
    ways.push_back(config.model.is_language_model() ? "a shorter model.context"
                                                    : "a smaller model.image_size");
  ways.push_back("a smaller model");
  if (config.precision == Precision::Fp32) ways.push_back("precision=bf16");
  if (has_own_memory && !config.memory.offloads(OffloadKind::Optimizer))
    ways.push_back("memory.offload=[optimizer]");
  ways.push_back(config.parallel.strategy == Strategy::Fsdp ? "more ranks"
                                                            : "parallel.strategy=fsdp on more ranks");
  return fmt::format("{}, or more memory", fmt::join(ways, ", "));
}

}  // namespace

int64_t memory_limit(const Config& config, const CompileOptions& options) {
  if (config.memory.limit > 0) return config.memory.limit;
  return options.device_memory > 0 ? options.device_memory : total_memory_bytes() / options.ranks_here;
}

int64_t counted_bytes(const ArenaSizes& sizes, const CompileOptions& options) {
  return options.device_memory > 0 ? device_bytes(sizes) : total_bytes(sizes);
}

int64_t host_limit(const CompileOptions& options) {
  const bool is_here =
      options.device_memory > 0 && options.device_memory < std::numeric_limits<int64_t>::max();
  return is_here ? total_memory_bytes() / options.ranks_here : std::numeric_limits<int64_t>::max();
}

void require_fit(const Config& config, const Backend& backend, const CompiledStep& step,
                 const BuildModel& model, int ranks_here, const std::function<void()>& while_compiling) {
  const CompileOptions options = compile_options(config, backend, step.position, ranks_here);
  const int64_t limit = memory_limit(config, options), needed = counted_bytes(step.sizes, options);
  const int64_t host = step.sizes[static_cast<size_t>(Arena::Host)];
  const int64_t machine = host_limit(options);
  if (host > machine) {
    throw PlanError(
        "memory: the plan needs {} of the host's memory but this machine has {} a rank; offload less, or set "
        "checkpoint.async=false",
        format_bytes(host), format_bytes(machine));
  }
  if (needed <= limit) return;
  const std::string source = config.memory.limit > 0     ? "memory.limit"
                             : options.device_memory > 0 ? "the GPU's memory"
                                                         : "this machine's memory";
  Search search(config, backend, model, step, ranks_here, while_compiling, limit);
  if (const auto change = search.cheapest()) {
    throw PlanError("memory: the plan needs {} but {} is {}; the cheapest change that fits is {} ({})",
                    format_bytes(needed), source, format_bytes(limit), change->flags,
                    format_bytes(change->bytes));
  }
  throw PlanError(
      "memory: the plan needs {} but {} is {}; recomputation and micro-batches of {} still need {}: use {}",
      format_bytes(needed), source, format_bytes(limit), search.smallest_micro_batch(),
      format_bytes(search.smallest()),
      other_ways(config, search.smallest_is_mostly_activations(), options.device_memory > 0));
}

}  // namespace tandem
