#include "tandem/train/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tandem {
namespace {

double scaled_peak(const TrainConfig& config) {
  const double ratio =
      static_cast<double>(config.batch) / static_cast<double>(std::max<int64_t>(1, config.lr_batch));
  switch (config.lr_scaling) {
    case LrScaling::None: break;
    case LrScaling::Linear: return config.lr * ratio;
    case LrScaling::Sqrt: return config.lr * std::sqrt(ratio);
  }
  return config.lr;
}

double at_points(const std::vector<StepValue>& points, int64_t step) {
  const auto after =
      std::find_if(points.begin(), points.end(), [&](const StepValue& p) { return p.step >= step; });
  if (after == points.end()) return points.back().value;
  if (after == points.begin() || after->step == step) return after->value;
  const StepValue& before = *std::prev(after);
  const double share =
      static_cast<double>(step - before.step) / static_cast<double>(after->step - before.step);
  return before.value + (after->value - before.value) * share;
}

double half_cosine(double from, double to, double done) {
  return to + 0.5 * (from - to) * (1.0 + std::cos(std::numbers::pi * done));
}

double warming(const TrainConfig& config, double peak, int64_t step) {
  const double low = peak * config.start_lr;
  if (config.schedule == ScheduleKind::OneCycle) {  // the first step is at the very beginning
    if (config.warmup == 1) return peak;
    return half_cosine(low, peak, static_cast<double>(step - 1) / static_cast<double>(config.warmup - 1));
  }
  return low + (peak - low) * static_cast<double>(step) / static_cast<double>(config.warmup);
}

// The last decay_steps of wsd, from 0 to 1.
double decayed(const TrainConfig& config, double peak, double floor, int64_t step) {
  const auto length = static_cast<double>(std::max<int64_t>(1, config.decay_steps));
  const double begin = static_cast<double>(config.steps) - length;
  const double done = std::clamp((static_cast<double>(step) - begin) / length, 0.0, 1.0);
  switch (config.decay_shape) {
    case DecayShape::Linear: break;
    case DecayShape::Cosine: return half_cosine(peak, floor, done);
    case DecayShape::Sqrt: return peak + (floor - peak) * std::sqrt(done);
  }
  return peak + (floor - peak) * done;
}

}  // namespace

double learning_rate(const TrainConfig& config, int64_t step) {
  const double peak = scaled_peak(config);
  if (config.schedule == ScheduleKind::Points) return peak * at_points(config.points, step);
  if (step <= config.warmup) return warming(config, peak, step);
  const auto length = static_cast<double>(std::max<int64_t>(1, config.steps - config.warmup));
  const double done = std::min(1.0, static_cast<double>(step - config.warmup) / length);
  const double floor = peak * config.min_lr;
  switch (config.schedule) {
    case ScheduleKind::Constant: return peak;
    case ScheduleKind::Linear: return peak + (floor - peak) * done;
    case ScheduleKind::Cosine:
    case ScheduleKind::OneCycle: return half_cosine(peak, floor, done);
    case ScheduleKind::Wsd: return decayed(config, peak, floor, step);
    case ScheduleKind::Step: {
      const int64_t falls = (step - config.warmup - 1) / std::max<int64_t>(1, config.step_every);
      return peak * std::pow(config.step_factor, static_cast<double>(falls));
    }
    case ScheduleKind::InverseSqrt: {
      constexpr int64_t kWithoutWarmup = 10000;  // steps after which it has fallen to 1 / sqrt(2)
      const auto scale = static_cast<double>(config.warmup > 0 ? config.warmup : kWithoutWarmup);
      const auto shift = static_cast<double>(config.warmup > 0 ? 0 : kWithoutWarmup);
      return peak * std::sqrt(scale / (static_cast<double>(step) + shift));
    }
    case ScheduleKind::Points: break;
  }
  return peak;
}

}  // namespace tandem
