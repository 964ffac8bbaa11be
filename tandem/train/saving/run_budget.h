// A run's budget among its ranks: rank 0 counts, and what it says holds for all.
#pragma once

#include "tandem/base/error.h"
#include "tandem/train/journal.h"
#include "tandem/train/saving/budget.h"
#include "tandem/train/world.h"

namespace tandem {

// Ended, saved, before it would have cost more.
inline constexpr ExitCode kBudgetReached{76};

class RunBudget {
 public:
  RunBudget(const Config& config, const std::filesystem::path& run_dir, double start_s, bool goes_on,
            const World& world, Journal& journal);

  // Before the first step: whether there is no money for one. All ranks ask.
  bool is_over() const;
  // Before each step: whether it has to be the last, as far as this rank knows.
  bool is_last(std::optional<double> save_s);
  // When all have stopped: whether it was for the money. All ranks ask.
  bool is_reason(bool lead_says) const;

  void tell() { tell(false); }  // after a step
  void end() { tell(true); }
  ExitCode reached(int64_t saved);

 private:
  void tell(bool at_once);

  Budget budget_;
  const std::filesystem::path run_dir_;
  const World& world_;
  Journal& journal_;
};

}  // namespace tandem
