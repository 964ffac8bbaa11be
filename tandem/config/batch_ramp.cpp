#include "tandem/config/batch_ramp.h"

namespace tandem {

int64_t batch_of_step(const TrainConfig& train, int64_t step) {
  for (const StepValue& stretch : train.batch_ramp) {
    if (step <= stretch.step) return static_cast<int64_t>(stretch.value);
  }
  return train.batch;
}

int64_t steps_for_samples(const TrainConfig& train, int64_t samples) {
  int64_t done = 0, seen = 0;
  const auto steps_of = [&](int64_t batch) { return (samples - seen + batch - 1) / batch; };
  for (const StepValue& stretch : train.batch_ramp) {
    const auto batch = static_cast<int64_t>(stretch.value);
    if (seen + (stretch.step - done) * batch >= samples) return done + steps_of(batch);
    seen += (stretch.step - done) * batch;
    done = stretch.step;
  }
  return done + steps_of(train.batch);
}

}  // namespace tandem
