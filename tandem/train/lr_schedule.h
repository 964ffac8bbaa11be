// The learning rate of each step: warm-up, then one of the schedules to the end. What PyTorch or transformers
// also have gives the same rates there, with the step of ours that is one more than their index.
#pragma once

#include "tandem/config/config.h"

namespace tandem {

double learning_rate(const TrainConfig& config, int64_t step);  // steps count from 1

}  // namespace tandem
