// How many samples each step takes: train.batch, or less at the beginning where train.batch_ramp says so.
// The position in the data and the number of steps for so many samples follow from it.
#pragma once

#include <cstdint>

#include "tandem/config/config.h"

namespace tandem {

int64_t batch_of_step(const TrainConfig& train, int64_t step);  // steps count from 1
// The fewest steps that see at least as many samples.
int64_t steps_for_samples(const TrainConfig& train, int64_t samples);

}  // namespace tandem
