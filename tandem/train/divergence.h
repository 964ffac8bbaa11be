// Whether training still gets anywhere. fp16 skips a step now and then while its loss scale settles; a loss
// that is not finite, or gradients that are not where no scaling is left to lower, mean that the weights are
// beyond help, and saving them would only push good checkpoints out.
#pragma once

#include <cmath>
#include <cstdint>

#include "tandem/train/step_runner.h"

namespace tandem {

class Divergence {
 public:
  static constexpr int64_t kPatience = 10;  // steps

  // `saved`: the step of the checkpoint that the run goes on from; 0 for none.
  explicit Divergence(int64_t saved = 0) : saved_(saved) {}

  void add_step(const StepResult& result) {
    const bool finite = std::isfinite(result.loss);
    lost_steps_ = finite && (result.applied || result.loss_scale > 1) ? 0 : lost_steps_ + 1;
    if (finite) good_ = saved_;  // the loss is of those weights, or of later ones
  }
  void add_save(int64_t step) { saved_ = step; }

  int64_t lost_steps() const { return lost_steps_; }  // in a row, up to the last one
  int64_t saved() const { return saved_; }            // the newest checkpoint
  int64_t good() const { return good_; }              // the newest that has given a finite loss; 0 for none

 private:
  int64_t lost_steps_ = 0, saved_, good_ = 0;
};

}  // namespace tandem
