#include "tandem/compile/loss_scaler.h"

namespace tandem {

Node loss_scaler_state(Phase phase) {
  return {Op::State,
          {},
          {{"category", "optimizer"}, {"init", "zeros"}},
          {{DType::F64, Shape({kScalerSlots})}},
          kNoBlock,
          phase,
          std::string(kLossScaler)};
}

}  // namespace tandem
