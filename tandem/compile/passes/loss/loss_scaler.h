// The loss scale of fp16 as state of the step: small gradients are lifted out of the underflow range; a step
// whose gradients overflow is skipped and the scale halved; after a window of good steps it doubles. The pass
// multiplies by it, the update divides by it and ends with what the next step is to use, all on the device.
// Every rank has the same, since the norm that decides is that of all ranks.
#pragma once

#include "tandem/ir/graph.h"

namespace tandem {

// The state, and the output of the update that has it as the step leaves it. Checkpoints keep it in their
// manifest, so that they fit any precision.
inline constexpr std::string_view kLossScaler = "loss_scaler";

Node loss_scaler_state(Phase phase);  // a leaf; whoever runs the step writes it before the first

}  // namespace tandem
