// What to change when a run does not fit: candidates in the order of what they cost the user, each compiled
// and measured like the run itself, so that the change that is named is one that works.
#include <algorithm>
#include <optional>

#include "tandem/base/error.h"
#include "tandem/base/system.h"
#include "tandem/base/units.h"
#include "tandem/compile/recompute.h"
#include "tandem/train/compile_config.h"

namespace tandem {
namespace {

struct Change {
  Config config;
  std::string flags;  // "--set memory.recompute=full"
};

int64_t planned(const Config& config, const Backend& backend, const BuildModel& model) {
  return total_bytes(compile_config(config, compile_options(config, backend), model).sizes);
}

// From cheap to dear: synchronous checkpoints (a pause at each save), more recomputation (arithmetic),
// smaller micro-batches (less efficient products), and their combinations.
std::vector<Change> changes(const Config& config, int32_t blocks) {
  std::vector<Recompute> recomputes = {config.memory.recompute};
  bool dearer = config.memory.recompute.kind == RecomputeKind::None;
  for (const Recompute& choice : recompute_candidates(blocks)) {
    if (dearer && choice != config.memory.recompute) recomputes.push_back(choice);
    dearer = dearer || choice == config.memory.recompute;
  }
  std::vector<int64_t> sizes;
  for (int64_t size = config.train.micro_batch; size >= 1; --size) {
    if (config.train.batch % (size * config.parallel.data) == 0) sizes.push_back(size);
  }
  std::vector<bool> asyncs = {config.checkpoint.async};
  if (config.checkpoint.async) asyncs.push_back(false);

  std::vector<Change> list;
  for (int64_t size : sizes) {
    for (const Recompute& choice : recomputes) {
      for (bool async : asyncs) {
        Change change{config, ""};
        const auto add = [&](bool changed, std::string flag) {
          if (changed) change.flags += fmt::format("{}--set {}", change.flags.empty() ? "" : " ", flag);
        };
        change.config.train.micro_batch = size;
        change.config.memory.recompute = choice;
        change.config.checkpoint.async = async;
        add(async != config.checkpoint.async, "checkpoint.async=false");
        add(choice != config.memory.recompute, "memory.recompute=" + recompute_name(choice));
        add(size != config.train.micro_batch, fmt::format("train.micro_batch={}", size));
        if (!change.flags.empty()) list.push_back(std::move(change));
      }
    }
  }
  return list;
}

}  // namespace

int64_t memory_limit(const Config& config) {
  return config.memory.limit > 0 ? config.memory.limit : total_memory_bytes();
}

void require_fit(const Config& config, const Backend& backend, const CompiledStep& step,
                 const BuildModel& model) {
  const int64_t limit = memory_limit(config), needed = total_bytes(step.sizes);
  if (needed <= limit) return;
  const std::string source = config.memory.limit > 0 ? "memory.limit" : "this machine's memory";
  int64_t smallest = needed;
  for (const Change& change : changes(config, num_blocks(model(config.model, 1)))) {
    const int64_t bytes = planned(change.config, backend, model);
    smallest = std::min(smallest, bytes);
    if (bytes > limit) continue;
    throw PlanError("memory: the plan needs {} but {} is {}; the cheapest change that fits is {} ({})",
                    format_bytes(needed), source, format_bytes(limit), change.flags, format_bytes(bytes));
  }
  throw PlanError(
      "memory: the plan needs {} but {} is {}; recomputation and micro-batches of 1 still need {}: use a "
      "smaller model, "
      "precision=bf16 or more memory",
      format_bytes(needed), source, format_bytes(limit), format_bytes(smallest));
}

}  // namespace tandem
