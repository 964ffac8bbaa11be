// Dropout. Random numbers come four at a time: a thread has the elements of a row that share a block of them.
#include "tandem/kernels/cuda/device/cuda_check.h"
#include "tandem/kernels/cuda/elements.cuh"
#include "tandem/kernels/cuda/pointwise/row_kernels.h"
#include "tandem/runtime/dropout_mask.h"

namespace tandem::cuda {
namespace {

// Where a row does not begin with a block of numbers, its first and last blocks are not all of it.
template <typename T>
__global__ void __launch_bounds__(kRowThreads)
    dropout_kernel(int64_t rows, const __grid_constant__ DropoutMask mask, const int32_t* sample, const T* x,
                   T* y) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (i >= rows) return;
  const DropoutRow row = dropout_row(mask, i);
  const int64_t block = row.begin / 4 + int64_t{blockIdx.y} * blockDim.x + threadIdx.x;
  const int64_t begin = block * 4 - row.begin;  // column of the block's first element
  if (begin >= mask.width) return;
  const DropoutKey key = dropout_key(mask, first_sample(sample) + static_cast<uint64_t>(row.sample));
  const PhiloxBlock numbers = dropout_block(key, block);
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const int64_t col = begin + k;
    if (col < 0 || col >= mask.width) continue;
    const int64_t at = i * mask.width + col;
    const bool dropped = numbers.word[k] < mask.threshold;
    y[at] = from_float<T>(dropped ? 0.0f : __fmul_rn(to_float(x[at]), mask.scale));
  }
}

void run(const KernelArgs& args, Stream& stream) {
  const DropoutMask mask = dropout_mask(args);
  const int64_t rows = args.out[0].type.shape.rows();
  const RowLaunch launch = row_launch(rows, (mask.width + 3) / 4 + 1);
  for_storage(args.out[0].type.dtype, [&]<typename T>(T*) {
    dropout_kernel<T><<<launch.grid, launch.block, 0, queue_of(stream)>>>(
        rows, mask, args.in[1].as<const int32_t>(), args.in[0].as<const T>(), args.out[0].as<T>());
    check_launch("dropout");
  });
}

bool supports(const CallSignature& call) { return is_storage(call.in[0].dtype); }

}  // namespace

void add_dropout_kernels(KernelRegistry& registry) {
  registry.add({"cuda.dropout", Op::Dropout, supports, nullptr, run});
}

}  // namespace tandem::cuda
