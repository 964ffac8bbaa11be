// The declarations are those of NVML's public documentation: its header is not part of every toolkit.
#include "tandem/kernels/cuda/device/nvml.h"

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "tandem/kernels/cuda/device/cuda_check.h"
#include "tandem/kernels/cuda/device/shared_library.h"

namespace tandem::cuda {
namespace {

constexpr auto kEvery = std::chrono::seconds(1);
constexpr auto kLongestStart = std::chrono::seconds(5);  // of the library, with many GPUs

using Status = int;  // an enum there
constexpr Status kSuccess = 0;
constexpr int kDieSensor = 0;
using GpuHandle = struct OpaqueGpu*;

struct Utilization {  // percent
  unsigned gpu;
  unsigned memory;
};

struct Memory {  // bytes
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

template <typename... Args>
using Query = Status (*)(Args...);

struct Nvml {
  SharedLibrary library{"libnvidia-ml.so.1"};

#define TANDEM_NVML(member, symbol, ...) Query<__VA_ARGS__> member = library.load<Query<__VA_ARGS__>>(#symbol)
  TANDEM_NVML(init, nvmlInit_v2);
  TANDEM_NVML(shutdown, nvmlShutdown);
  TANDEM_NVML(find_gpu, nvmlDeviceGetHandleByPciBusId_v2, const char*, GpuHandle*);
  TANDEM_NVML(utilization, nvmlDeviceGetUtilizationRates, GpuHandle, Utilization*);
  TANDEM_NVML(milliwatts, nvmlDeviceGetPowerUsage, GpuHandle, unsigned*);
  TANDEM_NVML(temperature, nvmlDeviceGetTemperature, GpuHandle, int, unsigned*);
  TANDEM_NVML(memory, nvmlDeviceGetMemoryInfo, GpuHandle, Memory*);
#undef TANDEM_NVML

  Nvml() {
    if (const Status status = init(); status != kSuccess) throw DeviceError("nvml: init: error {}", status);
  }
  ~Nvml() { shutdown(); }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
};

class Sensors {
 public:
  explicit Sensors(int index) {  // DeviceError where the library is missing or does not know the GPU
    char bus_id[32] = {};
    check(cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, index), "cudaDeviceGetPCIBusId");
    const Status status = nvml_.find_gpu(bus_id, &gpu_);
    if (status != kSuccess) throw DeviceError("nvml: GPU {}: error {}", bus_id, status);
  }

  DeviceHealth read() const {  // a GPU that is cut into parts, for one, has not every sensor
    DeviceHealth health;
    Utilization utilization{};
    if (nvml_.utilization(gpu_, &utilization) == kSuccess)
      health.busy_percent = static_cast<float>(utilization.gpu);
    unsigned value = 0;
    if (nvml_.milliwatts(gpu_, &value) == kSuccess) health.power_w = static_cast<float>(value) / 1000;
    if (nvml_.temperature(gpu_, kDieSensor, &value) == kSuccess)
      health.temperature_c = static_cast<float>(value);
    Memory memory{};
    if (nvml_.memory(gpu_, &memory) == kSuccess) health.used_bytes = static_cast<int64_t>(memory.used);
    return health;
  }

 private:
  Nvml nvml_;
  GpuHandle gpu_ = nullptr;
};

class Watch {
 public:
  explicit Watch(int index) : thread_([this, index](const std::stop_token& stop) { work(index, stop); }) {}

  std::optional<DeviceHealth> newest() {
    std::unique_lock lock(mutex_);
    if (!asked_) changed_.wait_for(lock, kLongestStart, [this] { return started_; });
    asked_ = true;
    return newest_;
  }

 private:
  void work(int index, const std::stop_token& stop) {
    std::unique_ptr<Sensors> sensors;
    try {
      sensors = std::make_unique<Sensors>(index);
    } catch (const DeviceError&) {  // then there are no figures
    }
    do {
      const auto figures = sensors ? std::optional(sensors->read()) : std::nullopt;
      std::unique_lock lock(mutex_);
      newest_ = figures;
      started_ = true;
      changed_.notify_all();
      if (sensors) changed_.wait_for(lock, stop, kEvery, [] { return false; });
    } while (sensors && !stop.stop_requested());
  }

  std::mutex mutex_;
  std::condition_variable_any changed_;
  bool started_ = false;
  bool asked_ = false;  // only the first call may wait
  std::optional<DeviceHealth> newest_;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace

HealthProbe watch_gpu(int index) {
  return [watch = std::make_shared<Watch>(index)] { return watch->newest(); };  // functions are copied
}

}  // namespace tandem::cuda
