// What an update does with whole matrices: directions, with the bits of the CPU's kernel, and the parts of
// Newton and Schulz's iteration that are no products. Sums have a fixed order.
#include <algorithm>

#include "tandem/ir/placed_boxes.h"
#include "tandem/kernels/cuda/block_sum.cuh"
#include "tandem/kernels/cuda/device/cuda_check.h"
#include "tandem/kernels/cuda/groups.cuh"
#include "tandem/kernels/cuda/optimizer/optimizer_kernels.h"
#include "tandem/optimizers/optimizers.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kGroup = 4;

unsigned blocks_for(int64_t items) { return static_cast<unsigned>((items + kThreads - 1) / kThreads); }

template <int kSize, typename G, typename U>
__global__ void __launch_bounds__(kThreads)
    direction_kernel(const float* hyper, const double* norm, G* g, float* m, U* u, int64_t elems, bool keep) {
  __shared__ OptimizerStep<Muon> shared_step;
  if (threadIdx.x == 0) shared_step = optimizer_step<Muon>(hyper, norm);
  __syncthreads();
  const OptimizerStep<Muon> step = shared_step;
  const int64_t at = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kSize;
  if (at + kSize > elems) return;
  Group<G, kSize> grad = load_group<kSize>(g + at);
  Group<float, kSize> mean = load_group<kSize>(m + at);
  Group<U, kSize> out;
#pragma unroll
  for (int e = 0; e < kSize; ++e) {
    const float scaled = __fmul_rn(to_float(grad.value[e]), step.grad_factor);
    const float fresh = __fmul_rn(step.own.rest, fminf(fmaxf(scaled, -step.largest), step.largest));
    mean.value[e] = __fadd_rn(__fmul_rn(step.own.momentum, mean.value[e]), fresh);
    const float ahead = __fadd_rn(__fmul_rn(step.own.momentum, mean.value[e]), fresh);
    out.value[e] = from_float<U>(step.skip ? 0.0f : ahead);
    grad.value[e] = from_float<G>(0);
  }
  if (!step.skip) store_group(m + at, mean);
  store_group(u + at, out);
  if (!keep) store_group(g + at, grad);
}

bool supports_direction(const CallSignature& call) {
  return call.in[0].dtype == DType::F32 && call.in[1].dtype == DType::F64 && is_storage(call.in[2].dtype) &&
         call.in[3].dtype == DType::F32 && is_storage(call.out[0].dtype);
}

template <int kSize, typename G, typename U>
void launch_direction(const KernelArgs& args, int64_t begin, int64_t elems, Stream& stream) {
  if (elems == 0) return;
  direction_kernel<kSize><<<blocks_for(elems / kSize), kThreads, 0, queue_of(stream)>>>(
      args.in[0].as<const float>(), args.in[1].as<const double>(), args.in[2].as<G>() + begin,
      args.in[3].as<float>() + begin, args.out[0].as<U>() + begin, elems,
      args.attrs.integer_or("keep", 0) != 0);
  check_launch("muon_direction");
}

void run_direction(const KernelArgs& args, Stream& stream) {
  const int64_t elems = args.in[2].elems();
  for_storage(args.in[2].type.dtype, [&]<typename G>(G*) {
    for_storage(args.out[0].type.dtype, [&]<typename U>(U*) {
      const bool aligned = is_aligned(args.in[2].data, kGroup * sizeof(G)) &&
                           is_aligned(args.in[3].data, kGroup * sizeof(float)) &&
                           is_aligned(args.out[0].data, kGroup * sizeof(U));
      const int64_t grouped = aligned ? elems / kGroup * kGroup : 0;
      launch_direction<kGroup, G, U>(args, 0, grouped, stream);
      launch_direction<1, G, U>(args, grouped, elems - grouped, stream);
    });
  });
}

// The parts of a matrix, by value in a kernel's parameters.
struct Parts {
  static constexpr int kMost = 128;
  int count = 0;
  PlacedBox list[kMost];
};

Parts read_parts(const KernelArgs& args) {
  const std::vector<PlacedBox> parts = parse_placed(args.attrs.text("parts"));
  TANDEM_CHECK(parts.size() <= Parts::kMost, "a matrix in {} parts", parts.size());
  Parts result;
  for (const PlacedBox& part : parts) result.list[result.count++] = part;
  return result;
}

// Calls visit(column of the row, element of the flat buffer) for what this thread has of a row.
template <typename Visit>
__device__ __forceinline__ void for_row(const Parts& parts, int64_t row, const Visit& visit) {
  for (int p = 0; p < parts.count; ++p) {
    const Box& box = parts.list[p].box;
    if (row < box.row_begin || row >= box.row_end) continue;
    const int64_t cols = box.col_end - box.col_begin;
    const int64_t begin = parts.list[p].offset + (row - box.row_begin) * cols;
    for (int64_t i = threadIdx.x; i < cols; i += kThreads) visit(box.col_begin + i, begin + i);
  }
}

// A block for each row.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    row_squares_kernel(const __grid_constant__ Parts parts, const T* flat, double* sums) {
  double sum = 0;
  for_row(parts, blockIdx.x, [&](int64_t, int64_t at) {
    const double x = to_float(flat[at]);
    sum += x * x;
  });
  sum = block_sum<kThreads>(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads) norm_kernel(const double* sums, int64_t rows, double* norm) {
  const double sum = block_sum_of<kThreads>(rows, [sums](int64_t i) { return sums[i]; });
  if (threadIdx.x == 0) *norm = sqrt(sum);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    scale_rows_kernel(const __grid_constant__ Parts parts, const T* flat, const double* norm, double eps,
                      int64_t cols, T* y) {
  const auto factor = static_cast<float>(1 / fmax(*norm, eps));
  const int64_t row = blockIdx.x;
  for_row(parts, row,
          [&](int64_t col, int64_t at) { y[row * cols + col] = from_float<T>(to_float(flat[at]) * factor); });
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    place_rows_kernel(const __grid_constant__ Parts parts, const T* x, int64_t cols, T* flat) {
  const int64_t row = blockIdx.x;
  for_row(parts, row, [&](int64_t col, int64_t at) { flat[at] = x[row * cols + col]; });
}

bool supports_matrix(const CallSignature& call) {
  return std::all_of(call.in.begin(), call.in.end(),
                     [&](const TensorType& in) { return in.dtype == call.out[0].dtype; }) &&
         is_storage(call.out[0].dtype);
}

// Scratch: a sum for each row, and the norm.
size_t row_sums(const CallSignature& call, int) {
  return static_cast<size_t>(whole_box(call.out[0].shape).row_end + 1) * sizeof(double);
}

void run_normalize(const KernelArgs& args, Stream& stream) {
  const cudaStream_t queue = queue_of(stream);
  const Parts parts = read_parts(args);
  const Box whole = whole_box(args.out[0].type.shape);
  const auto rows = static_cast<unsigned>(whole.rows());
  auto* sums = reinterpret_cast<double*>(args.workspace.data());
  double* norm = sums + whole.rows();
  for_storage(args.out[0].type.dtype, [&]<typename T>(T*) {
    const T* flat = args.in[0].as<const T>();
    row_squares_kernel<<<rows, kThreads, 0, queue>>>(parts, flat, sums);
    norm_kernel<<<1, kThreads, 0, queue>>>(sums, whole.rows(), norm);
    scale_rows_kernel<<<rows, kThreads, 0, queue>>>(parts, flat, norm, args.attrs.real("eps"), whole.cols(),
                                                    args.out[0].as<T>());
  });
  check_launch("normalize_matrix");
}

void run_place(const KernelArgs& args, Stream& stream) {
  const Parts parts = read_parts(args);
  const Box whole = whole_box(args.in[1].type.shape);
  for_storage(args.out[0].type.dtype, [&]<typename T>(T*) {
    place_rows_kernel<<<static_cast<unsigned>(whole.rows()), kThreads, 0, queue_of(stream)>>>(
        parts, args.in[1].as<const T>(), whole.cols(), args.out[0].as<T>());
  });
  check_launch("place_matrix");
}

// y may be a.
template <int kSize, typename T>
__global__ void __launch_bounds__(kThreads)
    weighted_sum_kernel(float p, const T* a, float q, const T* b, T* y, int64_t elems) {
  const int64_t at = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kSize;
  if (at + kSize <= elems) {
    const Group<T, kSize> left = load_group<kSize>(a + at), right = load_group<kSize>(b + at);
    Group<T, kSize> out;
#pragma unroll
    for (int e = 0; e < kSize; ++e)
      out.value[e] = from_float<T>(p * to_float(left.value[e]) + q * to_float(right.value[e]));
    store_group(y + at, out);
  } else {
    for (int64_t i = at; i < elems; ++i) y[i] = from_float<T>(p * to_float(a[i]) + q * to_float(b[i]));
  }
}

void run_weighted_sum(const KernelArgs& args, Stream& stream) {
  const auto p = static_cast<float>(args.attrs.real("p")), q = static_cast<float>(args.attrs.real("q"));
  const int64_t elems = args.out[0].elems();
  if (elems == 0) return;
  for_storage(args.out[0].type.dtype, [&]<typename T>(T*) {
    constexpr int kSize = 16 / static_cast<int>(sizeof(T));
    const T* a = args.in[0].as<const T>();
    const T* b = args.in[1].as<const T>();
    T* y = args.out[0].as<T>();
    const bool aligned = is_aligned(a, 16) && is_aligned(b, 16) && is_aligned(y, 16);
    if (aligned) {
      weighted_sum_kernel<kSize>
          <<<blocks_for((elems + kSize - 1) / kSize), kThreads, 0, queue_of(stream)>>>(p, a, q, b, y, elems);
    } else {
      weighted_sum_kernel<1><<<blocks_for(elems), kThreads, 0, queue_of(stream)>>>(p, a, q, b, y, elems);
    }
  });
  check_launch("weighted_sum");
}

}  // namespace

void add_matrix_update_kernels(KernelRegistry& registry) {
  registry.add({"cuda.muon_direction", Op::MuonDirection, supports_direction, nullptr, run_direction});
  registry.add({"cuda.normalize_matrix", Op::NormalizeMatrix, supports_matrix, row_sums, run_normalize});
  registry.add({"cuda.place_matrix", Op::PlaceMatrix, supports_matrix, nullptr, run_place});
  registry.add({"cuda.weighted_sum", Op::WeightedSum, supports_matrix, nullptr, run_weighted_sum});
}

}  // namespace tandem::cuda
