// The CPU as a Backend.
#pragma once

#include "tandem/runtime/backend.h"

namespace tandem::cpu {

Backend make_backend();

}  // namespace tandem::cpu
