// What a run on a GPU records beside losses and times: how much of the GPU's memory it has, and what the
// sensors say. Neither holds up a step: memory is asked for between steps, once a second at most, and the
// sensors are read in the background.
#pragma once

#include <algorithm>
#include <optional>

#include "tandem/compile/executable.h"
#include "tandem/metrics/step_record.h"
#include "tandem/runtime/backend.h"
#include "tandem/runtime/session.h"

namespace tandem {

class DeviceFigures {
 public:
  DeviceFigures() = default;  // of a rank that records nothing
  DeviceFigures(const Backend& backend, const Communicators* comms)
      : probe_(backend.watch_health ? backend.watch_health(comms) : nullptr) {}

  CsvColumns columns() const { return health() ? CsvColumns::WithGpu : CsvColumns::Plain; }

  void add_to(StepRecord& record, const Session& session, double now_s) {
    if (now_s - measured_s_ >= 1) {
      measured_s_ = now_s;
      measure(session);
    }
    record.device_bytes = bytes_;
    const std::optional<DeviceHealth> figures = health();
    if (!figures) return;
    record.gpu_busy_percent = figures->busy_percent;
    record.gpu_power_w = figures->power_w;
    record.gpu_temperature_c = figures->temperature_c;
    record.gpu_used_bytes = figures->used_bytes;
  }

  // Nothing where the device is the machine itself, whose memory is the process's own.
  void measure(const Session& session) {
    if (session.shares_memory()) return;
    const int64_t libraries = session.library_bytes();
    bytes_ = device_bytes(session.step().sizes) + libraries;
    if (bytes_ <= peak_bytes_) return;
    peak_bytes_ = bytes_;
    library_bytes_ = libraries;
  }
  int64_t peak_bytes() const { return peak_bytes_; }
  std::optional<int64_t> library_bytes() const { return library_bytes_; }  // of that peak

 private:
  std::optional<DeviceHealth> health() const { return probe_ ? probe_() : std::nullopt; }

  HealthProbe probe_;
  double measured_s_ = 0;
  int64_t bytes_ = 0, peak_bytes_ = 0;
  std::optional<int64_t> library_bytes_;
};

}  // namespace tandem
