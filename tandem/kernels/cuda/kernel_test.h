// Runs one call of an op on the GPU and through the CPU's reference, and compares; twice on the GPU, which
// must give the same bits. Tests skip, and say so, where there is no GPU.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tandem/kernels/cpu/pointwise/pointwise_test.h"
#include "tandem/kernels/cuda/device/devices.h"
#include "tandem/runtime/kernel.h"

namespace tandem::cuda {

using cpu::Call;
using cpu::expect_near;
using cpu::HostTensor;
using cpu::kStorage;
using cpu::random_ids;
using cpu::random_tensor;

#define TANDEM_NEEDS_GPU()                                              \
  if (!::tandem::cuda::is_built() || ::tandem::cuda::devices().empty()) \
  GTEST_SKIP() << "no GPU on this machine"

// Uploads the inputs, prepares and runs the kernel (`name`, or the first that supports the call) on a queue
// of its own, with garbage in fresh outputs and workspace and guards behind both, and downloads the outputs.
std::vector<HostTensor> run_on_gpu(const Call& call, const std::string& name = {});

// `slack` is absolute, beside one unit in the last place of the storage type, relative.
void expect_as_reference(const Call& call, double slack = 4e-6, const std::string& name = {});

// The call that also sums the columns of its first output into a bias's gradient.
inline Call with_sums(Call call, const HostTensor& acc_bias) {
  call.shares.push_back(static_cast<int>(call.in.size()));
  call.in.push_back(acc_bias);
  call.out.push_back(acc_bias.type);
  call.attrs.set("sums", int64_t{1});
  return call;
}

}  // namespace tandem::cuda
