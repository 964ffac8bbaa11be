#include "tandem/compile/passes/loss/loss_scaler.h"

#include "tandem/compile/rewrite.h"

namespace tandem {

Node loss_scaler_state(Phase phase) {
  return zero_state(std::string(kLossScaler), {DType::F64, Shape({kScalerSlots})}, "optimizer", phase);
}

}  // namespace tandem
