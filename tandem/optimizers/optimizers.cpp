// What must hold of the table, checked as it is compiled.
#include "tandem/optimizers/optimizers.h"

namespace tandem {
namespace {

#define TANDEM_CHECK_NAME(type, text) static_assert(type::kEntry.name == #text);
TANDEM_OPTIMIZERS(TANDEM_CHECK_NAME)
#undef TANDEM_CHECK_NAME

// Optimizers that share a key share its range, which a config is checked against.
constexpr bool shared_keys_have_one_range() {
  for (const OptimizerEntry& entry : kOptimizers) {
    for (const HyperParam& param : entry.hyper) {
      if (kHyperKeys[hyper_key_index(param.key)].range != param.range) return false;
    }
  }
  return true;
}
static_assert(shared_keys_have_one_range());

constexpr bool states_are_told_apart() {
  for (const OptimizerEntry& entry : kOptimizers) {
    for (size_t i = 0; i < entry.states.size(); ++i) {
      for (size_t k = 0; k < i; ++k) {
        if (entry.states[i].name == entry.states[k].name) return false;
      }
    }
  }
  return true;
}
static_assert(states_are_told_apart());

// The op of the optimizer beside another reads the same input `hyper`.
constexpr bool slots_fit_the_one_beside() {
  for (const OptimizerEntry& entry : kOptimizers) {
    if (entry.beside.empty()) continue;
    const OptimizerEntry& other = optimizer_entry(optimizer_named(entry.beside));
    for (size_t i = 0; i < other.hyper.size(); ++i) {
      if (i >= entry.hyper.size() || entry.hyper[i].key != other.hyper[i].key) return false;
    }
  }
  return true;
}
static_assert(slots_fit_the_one_beside());

}  // namespace
}  // namespace tandem
