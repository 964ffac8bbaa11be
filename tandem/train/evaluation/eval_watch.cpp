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
  if (kept_by_ == "none" || !std::isfinite(kept_for) || (kept_ && !(kept_for < kept_->loss))) return false;
  kept_ = {step, kept_for};
  kept_of_ = kept_by_;
  return true;
}

nlohmann::json EvalWatch::state() const {
  return {{"best", to_json(best_)}, {"kept", to_json(kept_)}, {"kept_of", kept_of_}, {"in_vain", in_vain_}};
}

void EvalWatch::restore(const nlohmann::json& state, const std::string& kept_by_then) {
  if (state.is_null()) return;
  best_ = from_json(state.at("best"));
  in_vain_ = state.at("in_vain").get<int64_t>();
  const std::string of = state.value("kept_of", kept_by_then);  // older states have none
  if (of == "none" || of.empty() || (kept_by_ != "none" && of != kept_by_)) return;
  kept_ = from_json(state.at("kept"));
  kept_of_ = of;
}

void EvalWatch::forget() {
  best_.reset();
  kept_.reset();
  in_vain_ = 0;
}

}  // namespace tandem
