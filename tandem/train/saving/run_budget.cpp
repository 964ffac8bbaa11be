#include "tandem/train/saving/run_budget.h"

#include <fmt/format.h>

#include "tandem/base/system.h"

namespace tandem {

RunBudget::RunBudget(const Config& config, const std::filesystem::path& run_dir, double start_s, bool goes_on,
                     const World& world, Journal& journal)
    : budget_(config.train, run_dir, start_s, goes_on), run_dir_(run_dir), world_(world), journal_(journal) {}

bool RunBudget::is_over() const { return is_reason(budget_.is_over(steady_s())); }

bool RunBudget::is_last(std::optional<double> save_s) {
  return world_.leads() && budget_.is_last(steady_s(), save_s);
}

bool RunBudget::is_reason(bool lead_says) const {
  if (!budget_.is_set()) return false;
  return world_.size() == 1 ? lead_says : world_.from_lead(int64_t{lead_says}, "budget") != 0;
}

void RunBudget::tell(bool at_once) {
  if (!world_.leads() || !budget_.counts()) return;
  const double now = steady_s();
  budget_.note(now, at_once);
  journal_.set_money(budget_.text(now));
}

ExitCode RunBudget::reached(int64_t saved) {
  end();
  const double now = steady_s();
  const std::string text = budget_.text(now);
  const std::string where =
      saved == 0 ? "nothing is saved" : fmt::format("step {} is saved in {}", saved, run_dir_.string());
  journal_.event("budget", text, {{"step", saved}, {"spent_usd", budget_.spent_usd(now)}});
  journal_.message(fmt::format(
      "train.budget: {}, which another step might pass; {}: raise train.budget to go on", text, where));
  return kBudgetReached;
}

}  // namespace tandem
