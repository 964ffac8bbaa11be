#include "tandem/train/evaluation/eval_watch.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace tandem {
namespace {

nlohmann::json to_json(const std::optional<EvalWatch::Best>& best) {
  if (!best) return nullptr;
  return {{"step", best->step}, {"loss", best->loss}};
}

std::optional<EvalWatch::Best> from_json(const nlohmann::json& json) {
  if (json.is_null()) return std::nullopt;
  return EvalWatch::Best{json.at("step").get<int64_t>(), json.at("loss").get<double>()};
}

}  // namespace

// A loss that is not finite is never the best.
bool EvalWatch::add(int64_t step, double eval_loss, double kept_for) {
  if (std::isfinite(eval_loss) && (!best_ || eval_loss < best_->loss - config_.min_delta)) {
    best_ = {step, eval_loss};
    in_vain_ = 0;
  } else {
    ++in_vain_;
  }
  if (!std::isfinite(kept_for) || (kept_ && !(kept_for < kept_->loss))) return false;
  kept_ = {step, kept_for};
  return true;
}

nlohmann::json EvalWatch::state() const {
  return {{"best", to_json(best_)}, {"kept", to_json(kept_)}, {"in_vain", in_vain_}};
}

void EvalWatch::restore(const nlohmann::json& state) {
  if (state.is_null()) return;
  best_ = from_json(state.at("best"));
  kept_ = from_json(state.at("kept"));
  in_vain_ = state.at("in_vain").get<int64_t>();
}

}  // namespace tandem
