// Dynamic loss scaling for fp16: small gradients are lifted out of the underflow range; a step whose
// gradients overflowed is skipped and the scale halved; after a window of good steps it doubles.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "tandem/config/config.h"

namespace tandem {

class LossScaler {
 public:
  LossScaler(const TrainConfig& config, Precision precision);

  double scale() const { return scale_; }
  void update(bool finite);  // after each step

  nlohmann::json state() const;  // null where no scaling is done: a run resumed in fp16 then starts its own
  void restore(const nlohmann::json& state);

 private:
  bool active_;
  double scale_;
  int64_t window_;
  int64_t good_steps_ = 0;
};

}  // namespace tandem
