// The learning rate of each step: linear warm-up, then cosine, linear or constant to the end.
#pragma once

#include "tandem/config/config.h"

namespace tandem {

double learning_rate(const TrainConfig& config, int64_t step);  // steps count from 1

}  // namespace tandem
