// What the host knows of the loss scale of fp16. The step keeps it, on the device
// (compile/passes/loss/loss_scaler.h): the host says where it starts, reads it with a step's other figures,
// and notes it in checkpoints.
#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>

#include "tandem/config/config.h"
#include "tandem/ir/op.h"

namespace tandem {

class LossScaler {
 public:
  using Values = std::array<double, kScalerSlots>;

  LossScaler(const TrainConfig& config, Precision precision);

  bool active() const { return active_; }
  double scale() const { return values_[kScalerScale]; }  // of the next step; 1 where no scaling is done
  Values& values() { return values_; }                    // of the step's state

  nlohmann::json state() const;  // null where no scaling is done: a run resumed in fp16 then starts its own
  void restore(const nlohmann::json& state);

 private:
  bool active_;
  Values values_;
};

}  // namespace tandem
