// The table of optimizers. One is a header of this folder with its entry and its rule, a line here, and the
// rule in the CPU's and the GPU's arithmetic (kernels/cpu/optimizer/rules-inl.h,
// kernels/cuda/optimizer/rules.cuh). Config keys, ops, kernels and checkpoints follow from that.
#pragma once

#include <array>

#include "tandem/optimizers/adafactor.h"
#include "tandem/optimizers/adamw.h"
#include "tandem/optimizers/lamb.h"
#include "tandem/optimizers/lars.h"
#include "tandem/optimizers/lion.h"
#include "tandem/optimizers/muon.h"
#include "tandem/optimizers/schedule_free.h"
#include "tandem/optimizers/sgd.h"

// Calls what(type, name) for each: the type is the header's, the name is in configs, graphs and kernels.
#define TANDEM_OPTIMIZERS(what)                                                                      \
  what(AdamW, adamw) what(Sgd, sgd) what(Lion, lion) what(Muon, muon) TANDEM_TENSOR_OPTIMIZERS(what) \
      what(ScheduleFree, schedule_free_adamw)
// Those that read norms of whole parameters.
#define TANDEM_TENSOR_OPTIMIZERS(what) what(Lamb, lamb) what(Lars, lars) what(Adafactor, adafactor)

namespace tandem {

#define TANDEM_KIND(type, name) type,
enum class OptimizerKind : uint8_t { TANDEM_OPTIMIZERS(TANDEM_KIND) };
#undef TANDEM_KIND

#define TANDEM_ENTRY(type, name) type::kEntry,
inline constexpr OptimizerEntry kOptimizers[] = {TANDEM_OPTIMIZERS(TANDEM_ENTRY)};
#undef TANDEM_ENTRY
inline constexpr size_t kNumOptimizers = std::size(kOptimizers);

constexpr const OptimizerEntry& optimizer_entry(OptimizerKind kind) {
  return kOptimizers[static_cast<size_t>(kind)];
}

constexpr OptimizerKind optimizer_named(std::string_view name) {
  size_t i = 0;
  while (kOptimizers[i].name != name) ++i;
  return static_cast<OptimizerKind>(i);
}

// The rule of a parameter: a matrix of a block, or another.
constexpr OptimizerKind rule_for(OptimizerKind chosen, bool block_matrix) {
  const OptimizerEntry& entry = optimizer_entry(chosen);
  return block_matrix || entry.beside.empty() ? chosen : optimizer_named(entry.beside);
}

// Length of the update's input `hyper`.
constexpr int64_t num_hyper_slots(OptimizerKind kind) {
  return kHyperOwn + static_cast<int64_t>(optimizer_entry(kind).hyper.size());
}

// Where `key` is among the optimizer's own hyper-parameters; -1 where it has none.
constexpr int own_hyper(OptimizerKind kind, std::string_view key) {
  const std::span<const HyperParam> own = optimizer_entry(kind).hyper;
  for (size_t i = 0; i < own.size(); ++i) {
    if (own[i].key == key) return static_cast<int>(i);
  }
  return -1;
}

// The first entry with each key, in the table's order: what `train` has in a config.
constexpr bool is_first_with_key(size_t optimizer, std::string_view key) {
  for (size_t i = 0; i < optimizer; ++i) {
    if (own_hyper(static_cast<OptimizerKind>(i), key) >= 0) return false;
  }
  return true;
}
constexpr size_t count_hyper_keys() {
  size_t count = 0;
  for (size_t i = 0; i < kNumOptimizers; ++i) {
    for (const HyperParam& param : kOptimizers[i].hyper) count += is_first_with_key(i, param.key) ? 1 : 0;
  }
  return count;
}
inline constexpr size_t kNumHyperKeys = count_hyper_keys();

constexpr std::array<HyperParam, kNumHyperKeys> list_hyper_keys() {
  std::array<HyperParam, kNumHyperKeys> keys{};
  size_t next = 0;
  for (size_t i = 0; i < kNumOptimizers; ++i) {
    for (const HyperParam& param : kOptimizers[i].hyper) {
      if (is_first_with_key(i, param.key)) keys[next++] = param;
    }
  }
  return keys;
}
inline constexpr std::array<HyperParam, kNumHyperKeys> kHyperKeys = list_hyper_keys();

// A value for each of kHyperKeys.
using HyperValues = std::array<double, kNumHyperKeys>;
constexpr HyperValues default_hyper_values() {
  HyperValues values{};
  for (size_t i = 0; i < kNumHyperKeys; ++i) values[i] = kHyperKeys[i].value;
  return values;
}

constexpr size_t hyper_key_index(std::string_view key) {
  size_t i = 0;
  while (i < kNumHyperKeys && kHyperKeys[i].key != key) ++i;
  return i;
}

}  // namespace tandem
