#include "tandem/train/loss_scaler.h"

#include <nlohmann/json.hpp>

namespace tandem {

LossScaler::LossScaler(const TrainConfig& config, Precision precision)
    : active_(precision == Precision::Fp16), values_{active_ ? config.loss_scale : 1.0, 0.0} {}

nlohmann::json LossScaler::state() const {
  if (!active_) return nullptr;
  return {{"scale", scale()}, {"good_steps", static_cast<int64_t>(values_[kScalerGoodSteps])}};
}

void LossScaler::restore(const nlohmann::json& state) {
  if (!active_ || state.is_null()) return;
  values_[kScalerScale] = state.at("scale").get<double>();
  values_[kScalerGoodSteps] = static_cast<double>(state.at("good_steps").get<int64_t>());
}

}  // namespace tandem
