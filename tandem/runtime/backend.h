// A device family as the rest of the system sees it: kernels, and the ceilings they are measured against.
// The command line names a concrete one; nothing below it does.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "tandem/base/dtype.h"
#include "tandem/compile/passes/fuse.h"
#include "tandem/runtime/device.h"
#include "tandem/runtime/device_health.h"
#include "tandem/runtime/kernel.h"

namespace tandem {

struct Backend {
  std::string name;         // "cpu"
  std::string description;  // "avx512 + avx512_bf16"
  KernelRegistry kernels;
  // For commands on host memory (an optimizer that was offloaded), where the device has a memory of its own.
  std::optional<KernelRegistry> host_kernels;
  MakeDevice make_device;
  FuseOptions fuse;
  bool has_fp8 = false;                   // products of 8-bit floats
  bool overwrites_gradients = false;      // its kernels honour {fresh} and {keep}
  std::function<int64_t()> memory_bytes;  // the device's own memory; empty where it uses the machine's
  std::function<double(DType storage, int num_threads)> peak_flops;  // measured, FLOP/s of matrix products
  std::function<double(int num_threads)> copy_bandwidth;             // measured, bytes/s read plus written
  std::function<double(int num_threads)> read_bandwidth;             // measured, bytes/s of reads alone
  // Starts to watch the device of a rank that has these peers; empty where devices have no sensors.
  std::function<HealthProbe(const Communicators* comms)> watch_health;
  // Which device such a rank has: "NVIDIA H200 (GPU 3, GPU-4f...)"; empty where it is the machine itself.
  std::function<std::string(const Communicators* comms)> name_device;

  const KernelRegistry& on_host() const { return host_kernels ? *host_kernels : kernels; }
};

}  // namespace tandem
