// Which types weights and activations may have in kernels.
#pragma once

#include "tandem/base/dtype.h"

namespace tandem {

inline bool is_storage(DType dtype) { return dtype == DType::F32 || is_half(dtype); }

}  // namespace tandem
