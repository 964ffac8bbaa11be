// Seconds on the clock that never goes back. Only differences mean anything.
#pragma once

#include <chrono>

namespace tandem {

inline double steady_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace tandem
