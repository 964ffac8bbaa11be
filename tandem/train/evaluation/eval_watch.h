// What a run remembers of its evaluations: which was the best, for the checkpoint that is kept for it, and
// how many in a row have brought nothing, for runs that end then. It is in every checkpoint, so that a
// resumed run ends and keeps what one that never stopped would have.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>

#include "tandem/config/config.h"

namespace tandem {

class EvalWatch {
 public:
  // `kept_by` is checkpoint.best.
  explicit EvalWatch(const TrainConfig& config, std::string kept_by = "none")
      : config_(config), kept_by_(std::move(kept_by)) {}

  // `kept_for` is what checkpoint.best names. True where that is lower than ever before.
  bool add(int64_t step, double eval_loss, double kept_for);

  // train.patience evaluations in a row were not better than the best by train.min_delta.
  bool is_out_of_patience() const { return config_.patience > 0 && in_vain_ >= config_.patience; }
  int64_t in_vain() const { return in_vain_; }
  struct Best {
    int64_t step = 0;
    double loss = 0;
  };
  const std::optional<Best>& best() const { return best_; }  // by train.min_delta
  const std::optional<Best>& kept() const { return kept_; }  // of checkpoint.best

  nlohmann::json state() const;
  // Null: nothing is known. `kept_by_then` is the checkpoint.best that the state was saved with: one loss
  // says nothing of another.
  void restore(const nlohmann::json& state, const std::string& kept_by_then);
  void forget();  // what is evaluated is something else from now on

 private:
  const TrainConfig& config_;
  const std::string kept_by_;  // none: kept_ stays what it was, as the checkpoint does
  std::string kept_of_;        // what kept_ is the best in
  std::optional<Best> best_, kept_;
  int64_t in_vain_ = 0;
};

}  // namespace tandem
