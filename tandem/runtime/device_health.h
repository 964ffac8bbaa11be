// What a device's own sensors say while it works, each figure where the device has it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

namespace tandem {

struct DeviceHealth {
  std::optional<float> busy_percent;  // of the last second or so, in which it had work
  std::optional<float> power_w;
  std::optional<float> temperature_c;
  std::optional<int64_t> used_bytes;  // of its memory, by every process
};

// The newest figures, which are about a second old at most; nothing where the device tells none. Only the
// first call may wait.
using HealthProbe = std::function<std::optional<DeviceHealth>()>;

}  // namespace tandem
