// What an update does where mean squares are kept by rows and columns (optimizers/adafactor.h). Squares are
// added up in double, in an order that depends on the pieces' shapes only.
#include <algorithm>
#include <vector>

#include "tandem/ir/factored_parts.h"
#include "tandem/kernels/cuda/block_sum.cuh"
#include "tandem/kernels/cuda/device/cuda_check.h"
#include "tandem/kernels/cuda/groups.cuh"
#include "tandem/kernels/cuda/optimizer/optimizer_kernels.h"
#include "tandem/optimizers/optimizers.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kColumns = 32;  // of a block that sums columns
constexpr int kLanes = kThreads / kColumns;

unsigned blocks_for(int64_t items, int64_t each) { return static_cast<unsigned>((items + each - 1) / each); }

// What of the step these kernels read.
struct GradientStep {
  float factor, largest, share;
  bool skip;
};
__global__ void step_kernel(const float* hyper, const double* norm, GradientStep* to) {
  const OptimizerStep<Adafactor> step = optimizer_step<Adafactor>(hyper, norm);
  *to = {step.grad_factor, step.largest, step.own.share, step.skip};
}

// A stored gradient, unscaled and clipped.
__device__ __forceinline__ float read_gradient(const GradientStep& step, float stored) {
  return fminf(fmaxf(__fmul_rn(stored, step.factor), -step.largest), step.largest);
}
template <typename G>
__device__ __forceinline__ double square_of(const GradientStep& step, G stored) {
  const float x = read_gradient(step, to_float(stored));
  return __fmul_rn(x, x);
}

// Of a vector.
template <typename G>
__global__ void __launch_bounds__(kThreads)
    add_vector_kernel(const GradientStep* step, const G* g, int64_t elems, double* sums) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < elems) sums[i] += square_of(*step, g[i]);
}

// A block for each row.
template <typename G>
__global__ void __launch_bounds__(kThreads)
    add_rows_kernel(const GradientStep* step, const G* g, int64_t cols, double* sums) {
  const GradientStep here = *step;
  const G* row = g + int64_t{blockIdx.x} * cols;
  const double sum = block_sum_of<kThreads>(cols, [&](int64_t i) { return square_of(here, row[i]); });
  if (threadIdx.x == 0) sums[blockIdx.x] += sum;
}

// A block for each kColumns columns; its lanes take rows in turns.
template <typename G>
__global__ void __launch_bounds__(kThreads)
    add_columns_kernel(const GradientStep* step, const G* g, int64_t rows, int64_t cols, double* sums) {
  __shared__ double lanes[kLanes][kColumns];
  const GradientStep here = *step;
  const int lane = threadIdx.x / kColumns, column = threadIdx.x % kColumns;
  const int64_t col = int64_t{blockIdx.x} * kColumns + column;
  double sum = 0;
  if (col < cols) {
    for (int64_t row = lane; row < rows; row += kLanes) sum += square_of(here, g[row * cols + col]);
  }
  lanes[lane][column] = sum;
  __syncthreads();
  if (lane != 0 || col >= cols) return;
  for (int other = 1; other < kLanes; ++other) sum += lanes[other][column];
  sums[col] += sum;
}

bool supports_sums(const CallSignature& call) {
  if (call.in[0].dtype != DType::F32 || call.in[1].dtype != DType::F64) return false;
  return std::all_of(call.in.begin() + 2, call.in.end(),
                     [](const TensorType& g) { return is_storage(g.dtype); });
}

size_t step_bytes(const CallSignature&, int) { return sizeof(GradientStep); }

GradientStep* make_step(const KernelArgs& args, cudaStream_t queue) {
  auto* step = reinterpret_cast<GradientStep*>(args.workspace.data());
  step_kernel<<<1, 1, 0, queue>>>(args.in[0].as<const float>(), args.in[1].as<const double>(), step);
  check_launch("factored_step");
  return step;
}

void run_sums(const KernelArgs& args, Stream& stream) {
  const cudaStream_t queue = queue_of(stream);
  const GradientStep* step = make_step(args, queue);
  const std::vector<FactoredPart> parts = parse_factored(args.attrs.text("parts"));
  auto* sums = args.out[0].as<double>();
  check(cudaMemsetAsync(sums, 0, static_cast<size_t>(args.out[0].elems()) * sizeof(double), queue),
        "factor_sums");
  for (size_t i = 0; i < parts.size(); ++i) {
    const Factors& factors = parts[i].factors;
    for (const PlacedBox& part : parts[i].boxes) {
      const Box& box = part.box;
      double* rows = sums + parts[i].first + box.row_begin;
      double* cols = sums + parts[i].first + factors.rows + box.col_begin;
      for_storage(args.in[2 + i].type.dtype, [&]<typename G>(G*) {
        const G* g = args.in[2 + i].as<const G>() + part.offset;
        if (factors.is_vector()) {
          add_vector_kernel<<<blocks_for(box.rows(), kThreads), kThreads, 0, queue>>>(step, g, box.rows(),
                                                                                      rows);
          return;
        }
        add_rows_kernel<<<blocks_for(box.rows(), 1), kThreads, 0, queue>>>(step, g, box.cols(), rows);
        add_columns_kernel<<<blocks_for(box.cols(), kColumns), kThreads, 0, queue>>>(step, g, box.rows(),
                                                                                     box.cols(), cols);
      });
      check_launch("factor_sums");
    }
  }
}

// The rows' numbers are means over `cols` elements, those of columns over `rows`.
__global__ void __launch_bounds__(kThreads)
    moments_kernel(const GradientStep* step, const double* sums, float* state, int64_t rows, int64_t size,
                   double cols) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= size || step->skip) return;
  const double mean = sums[i] / (i < rows ? cols : static_cast<double>(rows)), old = state[i];
  state[i] = static_cast<float>(old + step->share * (mean - old));
}

bool supports_moments(const CallSignature& call) {
  return call.in[0].dtype == DType::F32 && call.in[1].dtype == DType::F64 &&
         std::all_of(call.in.begin() + 3, call.in.end(),
                     [](const TensorType& state) { return state.dtype == DType::F32; });
}

void run_moments(const KernelArgs& args, Stream& stream) {
  const cudaStream_t queue = queue_of(stream);
  const GradientStep* step = make_step(args, queue);
  const std::vector<Factors> list = parse_factors(args.attrs.text("factors"));
  const auto* sums = args.in[2].as<const double>();
  for (size_t i = 0; i < list.size(); ++i) {
    const double cols = list[i].is_vector() ? 1 : static_cast<double>(list[i].cols);
    moments_kernel<<<blocks_for(list[i].size(), kThreads), kThreads, 0, queue>>>(
        step, sums, args.out[i].as<float>(), list[i].rows, list[i].size(), cols);
    check_launch("factor_moments");
    sums += list[i].size();
  }
}

// The mean of a matrix's rows, but not less than what it is divided by.
__global__ void __launch_bounds__(kThreads) mean_kernel(const float* state, int64_t rows, float* mean) {
  const double sum = block_sum_of<kThreads>(rows, [state](int64_t i) { return double{state[i]}; });
  if (threadIdx.x == 0) *mean = static_cast<float>(fmax(sum / static_cast<double>(rows), Adafactor::kEps));
}

// `cols` 0: of a vector.
template <typename G>
__global__ void __launch_bounds__(kThreads)
    directions_kernel(const GradientStep* step, G* g, int64_t elems, int64_t cols, const float* row_squares,
                      const float* col_squares, const float* mean) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= elems || step->skip) return;
  const float square =
      cols == 0 ? row_squares[i] : __fmul_rn(__fdiv_rn(row_squares[i / cols], *mean), col_squares[i % cols]);
  const auto least = static_cast<float>(Adafactor::kEps * Adafactor::kEps);
  const float x = read_gradient(*step, to_float(g[i]));
  g[i] = from_float<G>(__fdiv_rn(x, __fsqrt_rn(fmaxf(square, least))));
}

bool supports_directions(const CallSignature& call) {
  if (call.in[0].dtype != DType::F32 || call.in[1].dtype != DType::F64) return false;
  for (size_t i = 2; i < call.in.size(); i += 2) {
    if (!is_storage(call.in[i].dtype) || call.in[i + 1].dtype != DType::F32) return false;
  }
  return true;
}

// The step, and a mean for each piece.
size_t directions_bytes(const CallSignature& call, int) {
  return sizeof(GradientStep) + (call.in.size() - 2) / 2 * sizeof(float);
}

void run_directions(const KernelArgs& args, Stream& stream) {
  const cudaStream_t queue = queue_of(stream);
  const GradientStep* step = make_step(args, queue);
  const std::vector<FactoredPart> parts = parse_factored(args.attrs.text("parts"));
  auto* means = reinterpret_cast<float*>(args.workspace.data() + sizeof(GradientStep));
  for (size_t i = 0; i < parts.size(); ++i) {
    const Factors& factors = parts[i].factors;
    const auto* state = args.out[2 * i + 1].as<const float>();
    if (!factors.is_vector()) mean_kernel<<<1, kThreads, 0, queue>>>(state, factors.rows, means + i);
    for (const PlacedBox& part : parts[i].boxes) {
      const Box& box = part.box;
      for_storage(args.out[2 * i].type.dtype, [&]<typename G>(G*) {
        directions_kernel<<<blocks_for(box.elems(), kThreads), kThreads, 0, queue>>>(
            step, args.out[2 * i].as<G>() + part.offset, box.elems(), factors.is_vector() ? 0 : box.cols(),
            state + box.row_begin, state + factors.rows + box.col_begin, means + i);
      });
      check_launch("factor_directions");
    }
  }
}

}  // namespace

void add_factored_update_kernels(KernelRegistry& kernels) {
  kernels.add({"cuda.factor_sums", Op::FactorSums, supports_sums, step_bytes, run_sums});
  kernels.add({"cuda.factor_moments", Op::FactorMoments, supports_moments, step_bytes, run_moments});
  kernels.add({"cuda.factor_directions", Op::FactorDirections, supports_directions, directions_bytes,
               run_directions});
}

}  // namespace tandem::cuda
