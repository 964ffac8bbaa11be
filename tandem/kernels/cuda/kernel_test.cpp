#include "tandem/kernels/cuda/kernel_test.h"

#include <cuda_runtime_api.h>

#include "tandem/kernels/cuda/device/cuda_check.h"
#include "tandem/kernels/cuda/register.h"

namespace tandem::cuda {
namespace {

constexpr size_t kGuard = 256;
constexpr int kGarbage = 0xa5;

// Device bytes with a guard behind them.
class DeviceBytes {
 public:
  explicit DeviceBytes(size_t size) : size_(size) {
    check(cudaMalloc(&data_, size + kGuard), "cudaMalloc");
    check(cudaMemset(data_, kGarbage, size + kGuard), "cudaMemset");
  }
  ~DeviceBytes() { cudaFree(data_); }
  DeviceBytes(DeviceBytes&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(other.size_) {}
  std::byte* data() const { return static_cast<std::byte*>(data_); }

  void expect_guard(const std::string& what) const {
    std::vector<std::byte> guard(kGuard);
    check(cudaMemcpy(guard.data(), data() + size_, kGuard, cudaMemcpyDeviceToHost), "cudaMemcpy");
    for (std::byte b : guard) ASSERT_EQ(b, std::byte{kGarbage}) << what << " wrote behind its memory";
  }

 private:
  void* data_ = nullptr;
  size_t size_;
};

const Kernel& find_kernel(const CallSignature& signature, const std::string& name) {
  static const KernelRegistry registry = all_kernels();
  return name.empty() ? registry.choose(signature) : registry.by_name(name);
}

}  // namespace

std::vector<HostTensor> run_on_gpu(const Call& call, const std::string& name) {
  const CallSignature signature = call.signature();
  const Kernel& kernel = find_kernel(signature, name);
  EXPECT_TRUE(kernel.supports(signature)) << kernel.name;

  std::vector<DeviceBytes> buffers;
  std::vector<TensorArg> in, out;
  for (const HostTensor& tensor : call.in) {
    buffers.emplace_back(tensor.bytes.size());
    in.push_back({buffers.back().data(), tensor.type});
  }
  for (size_t k = 0; k < call.out.size(); ++k) {
    const int shared = call.shares[k];
    if (shared < 0) buffers.emplace_back(static_cast<size_t>(call.out[k].bytes()));
    out.push_back({shared < 0 ? buffers.back().data() : in[static_cast<size_t>(shared)].data, call.out[k]});
  }
  const size_t bytes = kernel.workspace == nullptr ? 0 : kernel.workspace(signature, 1);
  const DeviceBytes workspace(bytes);
  const auto upload = [&] {
    for (size_t i = 0; i < call.in.size(); ++i)
      check(cudaMemcpy(in[i].data, call.in[i].bytes.data(), call.in[i].bytes.size(), cudaMemcpyHostToDevice),
            "cudaMemcpy");
    check(cudaDeviceSynchronize(), "cudaMemcpy");  // copies of pageable memory, and memsets, may still run
  };

  static ThreadPool pool(1);
  cudaStream_t queue = nullptr;
  check(cudaStreamCreateWithFlags(&queue, cudaStreamNonBlocking), "cudaStreamCreate");
  Stream stream(pool, queue);
  const KernelArgs args{in, out, call.attrs, {workspace.data(), bytes}};
  upload();
  if (kernel.prepare != nullptr) {
    kernel.prepare(args, stream);
    check(cudaStreamSynchronize(queue), kernel.name.c_str());
    upload();
  }
  kernel.run(args, stream);
  check(cudaStreamSynchronize(queue), kernel.name.c_str());
  check(cudaStreamDestroy(queue), "cudaStreamDestroy");

  for (const DeviceBytes& buffer : buffers) buffer.expect_guard(kernel.name);
  workspace.expect_guard(kernel.name);
  std::vector<HostTensor> results;
  for (const TensorArg& tensor : out) {
    HostTensor host(tensor.type.dtype, tensor.type.shape);
    check(cudaMemcpy(host.bytes.data(), tensor.data, host.bytes.size(), cudaMemcpyDeviceToHost),
          "cudaMemcpy");
    results.push_back(std::move(host));
  }
  return results;
}

void expect_as_reference(const Call& call, double slack, const std::string& name) {
  const std::vector<HostTensor> want = cpu::run(cpu::reference_kernel(call.op), call, cpu::pool_of(1));
  const std::vector<HostTensor> got = run_on_gpu(call, name);
  for (size_t k = 0; k < got.size(); ++k) {
    expect_near(got[k], want[k], slack, fmt::format("{} output {}", op_name(call.op), k));
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_EQ(run_on_gpu(call, name), got) << op_name(call.op) << " run again";
}

}  // namespace tandem::cuda
