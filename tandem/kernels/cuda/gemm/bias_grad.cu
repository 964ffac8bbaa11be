// Two stages. First each block sums a chunk of rows of some columns: a warp reads 512 contiguous bytes of a
// row, the warps of a block take every eighth row, and their sums meet in shared memory. Then the chunks'
// sums are added. The chunks depend on the shape alone, so the sum is the same on every GPU.
#include "tandem/kernels/cuda/gemm/bias_grad.h"

#include <algorithm>

#include "tandem/kernels/cuda/device/cuda_check.h"
#include "tandem/kernels/cuda/elements.cuh"
#include "tandem/kernels/cuda/groups.cuh"

namespace tandem::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kWarps = 8;  // of a block
constexpr int kRows = 4;   // in flight a thread
constexpr int64_t kBlocks =
    792;  // at most, where rows are cut: six for each multiprocessor of an H200, in one wave

constexpr int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct Chunks {
  int64_t rows;  // of a chunk
  int64_t count;
};

Chunks chunks_of(DType dtype, int64_t rows, int64_t cols) {
  const int64_t columns_of_blocks = divide_up(cols, kWarp * 16 / dtype_bytes(dtype));
  const int64_t most = std::max<int64_t>(1, kBlocks / columns_of_blocks);
  const int64_t chunk = divide_up(divide_up(rows, most), kWarps) * kWarps;
  return {chunk, divide_up(rows, chunk)};
}

template <typename T, int kSize>
__global__ void __launch_bounds__(kWarp* kWarps)
    sum_chunks(const T* x, int64_t rows, int64_t cols, int64_t chunk_rows, float* chunk_sums) {
  using Elements = Group<T, kSize>;
  constexpr int kCols = kWarp * kSize;  // of a block
  __shared__ float of_warp[kWarps][kCols];
  const int lane = static_cast<int>(threadIdx.x), warp = static_cast<int>(threadIdx.y);
  const int64_t first_col = int64_t{blockIdx.x} * kCols, col = first_col + lane * kSize;
  const int64_t begin = blockIdx.y * chunk_rows;
  const int64_t end = begin + chunk_rows < rows ? begin + chunk_rows : rows;

  float sum[kSize] = {};
  const auto add = [&](const Elements& elements) {
    float addends[kSize];
    to_floats(elements.value, addends);
#pragma unroll
    for (int i = 0; i < kSize; ++i) sum[i] += addends[i];
  };
  if (col < cols) {
    const auto load = [&](int64_t row) { return load_group<kSize>(x + row * cols + col); };
    int64_t row = begin + warp;
    for (; row + (kRows - 1) * kWarps < end; row += kRows * kWarps) {
      Elements elements[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) elements[r] = load(row + r * kWarps);
#pragma unroll
      for (int r = 0; r < kRows; ++r) add(elements[r]);
    }
    for (; row < end; row += kWarps) add(load(row));
  }
#pragma unroll
  for (int i = 0; i < kSize; ++i) of_warp[warp][lane * kSize + i] = sum[i];
  __syncthreads();
  for (int c = warp * kWarp + lane; c < kCols && first_col + c < cols; c += kWarp * kWarps) {
    float total = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) total += of_warp[w][c];
    chunk_sums[blockIdx.y * cols + first_col + c] = total;
  }
}

// A block sums 32 columns: each warp every 32nd chunk, then, turned by shared memory, each warp one column.
__global__ void __launch_bounds__(kWarp* kWarp)
    add_chunks(const float* chunk_sums, int64_t count, int64_t cols, float* sums, bool accumulate) {
  __shared__ float part[kWarp][kWarp + 1];
  const int lane = static_cast<int>(threadIdx.x), warp = static_cast<int>(threadIdx.y);
  const int64_t first_col = int64_t{blockIdx.x} * kWarp;
  float sum = 0;
  if (first_col + lane < cols) {
#pragma unroll 4
    for (int64_t chunk = warp; chunk < count; chunk += kWarp)
      sum += chunk_sums[chunk * cols + first_col + lane];
  }
  part[warp][lane] = sum;
  __syncthreads();
  const float total = warp_sum(part[lane][warp]);
  const int64_t col = first_col + warp;
  if (lane == 0 && col < cols) sums[col] = accumulate ? sums[col] + total : total;
}

bool supports_bias_grad(const CallSignature& call) {
  return call.in[0].dtype == DType::F32 && is_storage(call.in[1].dtype);
}

size_t bias_grad_workspace(const CallSignature& call, int) {
  return column_sums_workspace(call.in[1].dtype, call.in[1].shape.rows(), call.in[1].shape.last());
}

void run_bias_grad(const KernelArgs& args, Stream& stream) {
  const TensorArg& dy = args.in[1];
  column_sums(dy.type.dtype, dy.data, dy.type.shape.rows(), dy.type.shape.last(), args.out[0].as<float>(),
              args.attrs.integer_or("fresh", 0) == 0, args.workspace, queue_of(stream));
}

}  // namespace

size_t column_sums_workspace(DType dtype, int64_t rows, int64_t cols) {
  return static_cast<size_t>(chunks_of(dtype, rows, cols).count * cols) * sizeof(float);
}

void column_sums(DType dtype, const void* x, int64_t rows, int64_t cols, float* sums, bool accumulate,
                 std::span<std::byte> workspace, cudaStream_t queue) {
  TANDEM_CHECK(workspace.size() >= column_sums_workspace(dtype, rows, cols));
  const Chunks chunks = chunks_of(dtype, rows, cols);
  auto* chunk_sums = reinterpret_cast<float*>(workspace.data());
  for_storage(dtype, [&]<typename T>(T*) {
    constexpr int kSize = Pack<T>::kSize;
    const bool grouped = cols % kSize == 0 && is_aligned(x, 16);
    const auto grid = [&](int64_t size) {
      return dim3(static_cast<unsigned>(divide_up(cols, kWarp * size)), static_cast<unsigned>(chunks.count));
    };
    const dim3 block(kWarp, kWarps);
    const auto* from = static_cast<const T*>(x);
    if (grouped) {
      sum_chunks<T, kSize><<<grid(kSize), block, 0, queue>>>(from, rows, cols, chunks.rows, chunk_sums);
    } else {
      sum_chunks<T, 1><<<grid(1), block, 0, queue>>>(from, rows, cols, chunks.rows, chunk_sums);
    }
  });
  check_launch("sum_chunks");
  add_chunk_sums(chunk_sums, chunks.count, cols, sums, accumulate, queue);
}

void add_chunk_sums(const float* chunk_sums, int64_t count, int64_t cols, float* sums, bool accumulate,
                    cudaStream_t queue) {
  add_chunks<<<static_cast<unsigned>(divide_up(cols, kWarp)), dim3(kWarp, kWarp), 0, queue>>>(
      chunk_sums, count, cols, sums, accumulate);
  check_launch("add_chunks");
}

void add_bias_grad_kernels(KernelRegistry& registry) {
  registry.add({"cuda.bias_grad", Op::BiasGrad, supports_bias_grad, bias_grad_workspace, run_bias_grad});
}

}  // namespace tandem::cuda
