#include "tandem/train/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tandem {

double learning_rate(const TrainConfig& config, int64_t step) {
  if (step <= config.warmup)
    return config.lr * static_cast<double>(step) / static_cast<double>(config.warmup);
  const auto length = static_cast<double>(std::max<int64_t>(1, config.steps - config.warmup));
  const double done = std::min(1.0, static_cast<double>(step - config.warmup) / length);
  const double floor = config.lr * config.min_lr;
  switch (config.schedule) {
    case ScheduleKind::Constant: return config.lr;
    case ScheduleKind::Linear: return config.lr + (floor - config.lr) * done;
    case ScheduleKind::Cosine:
      return floor + 0.5 * (config.lr - floor) * (1.0 + std::cos(std::numbers::pi * done));
  }
  return config.lr;
}

}  // namespace tandem
