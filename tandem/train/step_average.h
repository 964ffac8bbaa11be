// The share of each step in an average of all steps' weights (optimizers/schedule_free.h): steps count by the
// square of the largest learning rate so far, so that those of a warm-up count little. It depends on the
// config and the number of the step only, so that a resumed run goes on with the same shares.
#pragma once

#include <algorithm>

#include "tandem/train/lr_schedule.h"

namespace tandem {

class StepAverage {
 public:
  double share(const TrainConfig& train, int64_t step) {
    if (step < summed_) *this = {};
    while (summed_ < step) {
      largest_ = std::max(largest_, learning_rate(train, ++summed_));
      sum_ += largest_ * largest_;
    }
    return sum_ > 0 ? largest_ * largest_ / sum_ : 1;
  }

 private:
  int64_t summed_ = 0;  // steps
  double largest_ = 0, sum_ = 0;
};

}  // namespace tandem
