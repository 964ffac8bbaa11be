// What a run has cost, and when it has to end so that it will not cost more than train.budget.
//
// Every second of every process of the run counts, from its start to its end, at train.price: also those of
// processes that were killed, as of the last time they noted it in the run directory (spent.json).
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "tandem/config/config.h"

namespace tandem {

class Budget {
 public:
  // `start_s`: of this process, by the clock that all times below are of. What earlier processes of the run
  // spent is read where it `goes_on`. Throws DataError for a file that is damaged.
  Budget(const TrainConfig& train, const std::filesystem::path& run_dir, double start_s, bool goes_on);

  bool is_set() const { return budget_ > 0; }
  bool counts() const { return price_ > 0; }
  double spent_usd(double now_s) const { return (earlier_s_ + now_s - start_s_) * price_ / 3600; }

  // Asked before each step: whether that one has to be the last. There must be money for it, for another
  // turn that nobody foresaw, and for a save; `save_s` is what one takes, where it is known.
  bool is_last(double now_s, std::optional<double> save_s);

  // Whether there is none for a single step, as earlier processes have seen them.
  bool is_over(double now_s) const;

  // Writes what is spent, about once a second or `at_once`.
  void note(double now_s, bool at_once = false);

  std::string text(double now_s) const;  // "3.20USD spent, 496.80USD to go"; empty where nothing is counted

 private:
  double needed_s() const;

  const double budget_, price_, start_s_;
  const std::filesystem::path file_;
  double earlier_s_ = 0;
  double turn_s_ = 0;  // the longest from one step's beginning to the next's
  double save_s_ = 0;
  std::optional<double> last_begin_s_;
  double noted_s_ = 0;
};

}  // namespace tandem
