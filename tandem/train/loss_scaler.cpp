#include "tandem/train/loss_scaler.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace tandem {
namespace {

constexpr double kMinScale = 1.0;
constexpr double kMaxScale = 16777216.0;  // 2^24

}  // namespace

LossScaler::LossScaler(const TrainConfig& config, Precision precision)
    : active_(precision == Precision::Fp16),
      scale_(active_ ? config.loss_scale : 1.0),
      window_(config.loss_scale_window) {}

void LossScaler::update(bool finite) {
  if (!active_) return;
  if (!finite) {
    scale_ = std::max(kMinScale, scale_ / 2);
    good_steps_ = 0;
  } else if (++good_steps_ >= window_) {
    scale_ = std::min(kMaxScale, scale_ * 2);
    good_steps_ = 0;
  }
}

nlohmann::json LossScaler::state() const {
  if (!active_) return nullptr;
  return {{"scale", scale_}, {"good_steps", good_steps_}};
}

void LossScaler::restore(const nlohmann::json& state) {
  if (!active_ || state.is_null()) return;
  scale_ = state.at("scale").get<double>();
  good_steps_ = state.at("good_steps").get<int64_t>();
}

}  // namespace tandem
