// Ops that only move bytes. Columns are moved in the largest unit that every row begins and ends at.
#include "tandem/kernels/cuda/device/cuda_check.h"
#include "tandem/kernels/cuda/elements.cuh"
#include "tandem/kernels/cuda/pointwise/row_kernels.h"

namespace tandem::cuda {
namespace {

constexpr int kRowsPerThread = 4;

// A matrix of units, of which the first `columns` are moved; strides in units.
template <typename Unit>
__global__ void __launch_bounds__(kRowThreads)
    copy_units(int64_t rows, int64_t columns, const Unit* __restrict__ src, int64_t src_stride,
               Unit* __restrict__ dst, int64_t dst_stride) {
  const int64_t first = int64_t{blockIdx.x} * blockDim.y * kRowsPerThread + threadIdx.y;
  const int64_t column = int64_t{blockIdx.y} * blockDim.x + threadIdx.x;
  if (column >= columns) return;
  Unit units[kRowsPerThread];
#pragma unroll
  for (int k = 0; k < kRowsPerThread; ++k) {
    const int64_t row = first + k * blockDim.y;
    if (row < rows) units[k] = src[row * src_stride + column];
  }
#pragma unroll
  for (int k = 0; k < kRowsPerThread; ++k) {
    const int64_t row = first + k * blockDim.y;
    if (row < rows) dst[row * dst_stride + column] = units[k];
  }
}

struct Columns {
  int64_t rows;
  int64_t bytes;  // moved of each row
  const std::byte* src;
  int64_t src_stride;
  std::byte* dst;
  int64_t dst_stride;
};

template <typename Unit>
void launch_copy(const Columns& c, cudaStream_t queue) {
  constexpr auto kBytes = static_cast<int64_t>(sizeof(Unit));
  const RowLaunch launch = row_launch(c.rows, c.bytes / kBytes, kRowsPerThread);
  copy_units<<<launch.grid, launch.block, 0, queue>>>(
      c.rows, c.bytes / kBytes, reinterpret_cast<const Unit*>(c.src), c.src_stride / kBytes,
      reinterpret_cast<Unit*>(c.dst), c.dst_stride / kBytes);
  check_launch("copy of columns");
}

void copy_columns(const Columns& c, cudaStream_t queue) {
  if (c.rows == 0 || c.bytes == 0) return;
  const uint64_t bits = static_cast<uint64_t>(c.bytes | c.src_stride | c.dst_stride) |
                        reinterpret_cast<uintptr_t>(c.src) | reinterpret_cast<uintptr_t>(c.dst);
  if (bits % 16 == 0) return launch_copy<uint4>(c, queue);
  if (bits % 8 == 0) return launch_copy<uint2>(c, queue);
  if (bits % 4 == 0) return launch_copy<uint32_t>(c, queue);
  if (bits % 2 == 0) return launch_copy<uint16_t>(c, queue);
  launch_copy<uint8_t>(c, queue);
}

int64_t row_bytes(const TensorType& type) { return type.shape.last() * dtype_bytes(type.dtype); }

void run_concat(const KernelArgs& args, Stream& stream) {
  const TensorArg& y = args.out[0];
  if (y.elems() == 0) return;
  std::byte* dst = y.as<std::byte>();
  for (const TensorArg& x : args.in) {
    const int64_t bytes = row_bytes(x.type);
    copy_columns({y.type.shape.rows(), bytes, x.as<std::byte>(), bytes, dst, row_bytes(y.type)},
                 queue_of(stream));
    dst += bytes;
  }
}

void run_slice(const KernelArgs& args, Stream& stream) {
  const TensorArg& x = args.in[0];
  const TensorArg& y = args.out[0];
  if (y.elems() == 0) return;
  const std::byte* src = x.as<std::byte>() + args.attrs.integer("begin") * dtype_bytes(x.type.dtype);
  copy_columns(
      {y.type.shape.rows(), row_bytes(y.type), src, row_bytes(x.type), y.as<std::byte>(), row_bytes(y.type)},
      queue_of(stream));
}

// Zero is all bits zero in every type.
void run_zeros(const KernelArgs& args, Stream& stream) {
  const TensorArg& y = args.out[0];
  if (y.elems() == 0) return;
  check(cudaMemsetAsync(y.data, 0, static_cast<size_t>(y.type.bytes()), queue_of(stream)), "zeros");
}

// Between any two memories: the host's is pinned and has the same addresses on the device.
void run_copy(const KernelArgs& args, Stream& stream) {
  const TensorArg& x = args.in[0];
  const TensorArg& y = args.out[0];
  if (y.elems() == 0 || x.data == y.data) return;
  check(cudaMemcpyAsync(y.data, x.data, static_cast<size_t>(y.type.bytes()), cudaMemcpyDefault,
                        queue_of(stream)),
        "copy");
}

bool supports_concat(const CallSignature& call) {
  int64_t width = 0;
  for (const TensorType& type : call.in) {
    if (type.dtype != call.out[0].dtype) return false;
    width += type.shape.last();
  }
  return width == call.out[0].shape.last();
}
bool supports_slice(const CallSignature& call) {
  return call.in.size() == 1 && call.in[0].dtype == call.out[0].dtype &&
         call.attrs->integer("begin") + call.out[0].shape.last() <= call.in[0].shape.last();
}
bool supports_zeros(const CallSignature&) { return true; }
bool supports_copy(const CallSignature& call) {
  return call.in[0].dtype == call.out[0].dtype && call.in[0].shape.elems() == call.out[0].shape.elems();
}

}  // namespace

void add_shape_kernels(KernelRegistry& registry) {
  registry.add({"cuda.concat", Op::Concat, supports_concat, nullptr, run_concat});
  registry.add({"cuda.slice", Op::Slice, supports_slice, nullptr, run_slice});
  registry.add({"cuda.zeros", Op::Zeros, supports_zeros, nullptr, run_zeros});
  registry.add({"cuda.copy", Op::Copy, supports_copy, nullptr, run_copy});
}

}  // namespace tandem::cuda
