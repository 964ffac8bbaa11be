// Optimizers by the names that other programs have for them.
#pragma once

#include <optional>
#include <string_view>

#include "tandem/convert/draft.h"
#include "tandem/optimizers/optimizers.h"

namespace tandem::convert {

// "AdamW", "FusedAdam", "adamw_torch_fused", "SGD"; nothing for one that Tandem has not.
std::optional<OptimizerKind> find_optimizer(std::string_view name);

// Sets train.optimizer, and says so where adamw has to stand in or states were stored in fewer bits. `key` is
// what the file calls it.
OptimizerKind set_optimizer(std::string key, std::string_view name, Draft& draft);

// Where the optimizer has such a number.
void set_hyper(OptimizerKind optimizer, std::string_view ours, double value, Draft& draft);

}  // namespace tandem::convert
