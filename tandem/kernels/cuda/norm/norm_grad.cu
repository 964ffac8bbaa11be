// Gradients of LayerNorm and RmsNorm. With g = dy gamma and x_hat = (x - mean) rstd:
//   dx = rstd (g - mean(g) - x_hat mean(g x_hat)) [+ dres],  dgamma = sum of dy x_hat,  dbeta = sum of dy
// without mean(g), mean and dbeta for RmsNorm; where asked for, also the sums of dx over the rows. A fixed
// number of blocks share the rows, read each once, and leave their sums of the columns to a second kernel,
// which adds them up block by block. So the result does not depend on the GPU.
#include "tandem/kernels/cuda/norm/norm_grad_rows.cuh"

#include "tandem/kernels/cuda/device/cuda_check.h"

namespace tandem::cuda {
namespace {

// Packs of a thread, warps of a block, blocks of a multiprocessor, rows of a team under way. A thread's
// columns cost it three registers each, and the rows under way 512 bytes of shared memory a pack and warp and
// tensor.
using Rows = RowTuning<2, 8, 2, 3>;       // the fastest of eleven at 768, 1600 and 2048 columns, on an H200
using WideRows = RowTuning<2, 16, 1, 3>;  // rows that eight warps do not hold

constexpr int kProcessors = 132;
constexpr int kMinBlockRows = 8;  // so that a block's sums are small beside its rows
constexpr int kCombineRows = 32;  // threads that share a column of the blocks' sums
constexpr int kColumnThreads = 128;
// Rows of any width and alignment take several kernels: first the sums, one column a thread, then dx, which
// may overwrite dy, then its sum.
template <typename T>
__global__ void __launch_bounds__(kColumnThreads)
    param_grad_any_width(const NormGradCall<T> call, int num_sums) {
  const int column = static_cast<int>(blockIdx.x * kColumnThreads + threadIdx.x);
  if (column >= call.width) return;
  float dgamma = 0, dbeta = 0;
  for (int row = static_cast<int>(blockIdx.y); row < call.rows; row += static_cast<int>(gridDim.y)) {
    const int64_t at = static_cast<int64_t>(row) * call.width + column;
    const float dy = to_float(call.dy[at]), x = to_float(call.x[at]);
    dgamma = fmaf(dy, (x - call.mean_of(row)) * call.rstd[row], dgamma);
    dbeta += dy;
  }
  float* partials = call.partials + static_cast<int64_t>(blockIdx.y) * num_sums * call.width + column;
  partials[0] = dgamma;
  if (call.mean != nullptr) partials[call.width] = dbeta;
}

template <typename T>
__global__ void __launch_bounds__(kAnyWidthThreads) input_grad_any_width(const NormGradCall<T> call) {
  __shared__ float scratch[2][kMaxWarps];
  const int row = static_cast<int>(blockIdx.x), first = static_cast<int>(threadIdx.x);
  const int64_t begin = static_cast<int64_t>(row) * call.width;
  const float mean = call.mean_of(row), rstd = call.rstd[row];
  const auto gamma = [&](int i) { return to_float(call.gamma[i]) + call.plus; };
  const auto g = [&](int i) { return to_float(call.dy[begin + i]) * gamma(i); };
  const auto x_hat = [&](int i) { return (to_float(call.x[begin + i]) - mean) * rstd; };
  float sums[2] = {};
  for (int i = first; i < call.width; i += kAnyWidthThreads) {
    sums[0] = fmaf(g(i), x_hat(i), sums[0]);
    sums[1] += g(i);
  }
  row_sums(sums, scratch);
  const float mean_gx = sums[0] * call.inv_width;
  const float mean_g = call.mean != nullptr ? sums[1] * call.inv_width : 0.0f;
  for (int i = first; i < call.width; i += kAnyWidthThreads) {
    T dx = from_float<T>(input_gradient(g(i), x_hat(i), mean_g, mean_gx, rstd));
    if (call.y != nullptr) {
      const float beta = call.beta != nullptr ? to_float(call.beta[i]) : 0.0f;
      call.y[begin + i] = from_float<T>(norm_output(x_hat(i), gamma(i), beta));
    }
    if (call.dres != nullptr) dx = from_float<T>(to_float(dx) + to_float(call.dres[begin + i]));
    call.dx[begin + i] = dx;
  }
}

template <typename T>
__global__ void __launch_bounds__(kColumnThreads) dx_sum_any_width(const NormGradCall<T> call, int num_sums) {
  const int column = static_cast<int>(blockIdx.x * kColumnThreads + threadIdx.x);
  if (column >= call.width) return;
  float sum = 0;
  for (int row = static_cast<int>(blockIdx.y); row < call.rows; row += static_cast<int>(gridDim.y))
    sum += to_float(call.dx[static_cast<int64_t>(row) * call.width + column]);
  call.partials[(static_cast<int64_t>(blockIdx.y + 1) * num_sums - 1) * call.width + column] = sum;
}

// Block (32 columns, kCombineRows): adds up the blocks' sums, in order.
__global__ void __launch_bounds__(32 * kCombineRows)
    combine_partials(const float* partials, int blocks, const ColumnGrads grads) {
  __shared__ float sums[kCombineRows][32];
  const int columns = grads.count * grads.width;
  const int column = static_cast<int>(blockIdx.x * 32 + threadIdx.x);
  float sum = 0;
  if (column < columns) {
#pragma unroll 8
    for (int block = static_cast<int>(threadIdx.y); block < blocks; block += kCombineRows)
      sum += partials[static_cast<int64_t>(block) * columns + column];
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  sum = 0;
#pragma unroll
  for (int k = 0; k < kCombineRows; ++k) sum += sums[k][threadIdx.x];
  const int kind = column / grads.width;
  float* acc = (kind == 0 ? grads.to[0] : kind == 1 ? grads.to[1] : grads.to[2]) + column % grads.width;
  *acc = grads.fresh ? sum : *acc + sum;
}

struct RowPlan {
  int row_warps;  // of a team
  int teams;      // of a block; none: rows too long for a block
  int blocks;
};

template <typename Tuning>
RowPlan plan_with(int64_t row_packs, int64_t rows) {
  const int64_t row_warps =
      std::max<int64_t>(1, (row_packs + 32 * Tuning::kPacks - 1) / (32 * Tuning::kPacks));
  const int64_t teams = Tuning::kBlockWarps / row_warps;
  const int64_t blocks = rows / std::max<int64_t>(teams, kMinBlockRows);
  return {.row_warps = static_cast<int>(row_warps),
          .teams = static_cast<int>(teams),
          .blocks = static_cast<int>(std::clamp<int64_t>(blocks, 1, kProcessors * Tuning::kBlocks))};
}

// It must not depend on the optional tensors, which change no bits of the other results.
RowPlan plan_of(const TensorType& dy) {
  const int64_t row_packs = (dy.shape.last() * dtype_bytes(dy.dtype) + 15) / 16;
  const RowPlan plan = plan_with<Rows>(row_packs, dy.shape.rows());
  return plan.teams > 0 ? plan : plan_with<WideRows>(row_packs, dy.shape.rows());
}

template <typename T, typename Tuning, bool kCentred, bool kSumDx>
void launch_rows(const NormGradCall<T>& call, const RowPlan& plan, cudaStream_t queue) {
  const auto kernel = norm_grad_rows<T, Tuning, kCentred, kSumDx>;
  const int bytes = Tuning::kWarpSlots * plan.row_warps * plan.teams * static_cast<int>(sizeof(Pack<T>));
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), "norm_grad");
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                             cudaSharedmemCarveoutMaxShared),
        "norm_grad");
  const dim3 block(static_cast<unsigned>(32 * plan.row_warps), static_cast<unsigned>(plan.teams));
  kernel<<<static_cast<unsigned>(plan.blocks), block, static_cast<size_t>(bytes), queue>>>(call);
}

template <typename T, typename Tuning>
void launch_tuned(const NormGradCall<T>& call, const RowPlan& plan, bool sum_dx, cudaStream_t queue) {
  if (call.mean != nullptr) {
    sum_dx ? launch_rows<T, Tuning, true, true>(call, plan, queue)
           : launch_rows<T, Tuning, true, false>(call, plan, queue);
  } else {
    sum_dx ? launch_rows<T, Tuning, false, true>(call, plan, queue)
           : launch_rows<T, Tuning, false, false>(call, plan, queue);
  }
}

template <typename T>
void launch_any_width(const NormGradCall<T>& call, int blocks, int num_sums, bool sum_dx,
                      cudaStream_t queue) {
  const dim3 grid(static_cast<unsigned>((call.width + kColumnThreads - 1) / kColumnThreads),
                  static_cast<unsigned>(blocks));
  param_grad_any_width<T><<<grid, kColumnThreads, 0, queue>>>(call, num_sums);
  input_grad_any_width<T><<<static_cast<unsigned>(call.rows), kAnyWidthThreads, 0, queue>>>(call);
  if (sum_dx) dx_sum_any_width<T><<<grid, kColumnThreads, 0, queue>>>(call, num_sums);
}

template <typename T>
void launch(const NormGradCall<T>& call, const RowPlan& plan, const ColumnGrads& grads, cudaStream_t queue) {
  const bool sum_dx = grads.count == (call.mean != nullptr ? 3 : 2);
  if (plan.teams == 0 ||
      !rows_are_packs<T>(call.width, {call.dy, call.x, call.gamma, call.dres, call.dx, call.y, call.beta})) {
    launch_any_width(call, plan.blocks, grads.count, sum_dx, queue);
  } else if (plan.row_warps <= Rows::kBlockWarps) {
    launch_tuned<T, Rows>(call, plan, sum_dx, queue);
  } else {
    launch_tuned<T, WideRows>(call, plan, sum_dx, queue);
  }
  combine_columns(grads, call.partials, plan.blocks, queue);
  check_launch("norm_grad");
}

// What a call has beyond dy, x, gamma [, mean], rstd, acc_dgamma [, acc_dbeta] -> dx, dgamma! [, dbeta!]:
// [, beta] [, dres] [, acc_bias] -> [, y] [, acc_bias!].
template <bool kCentred>
struct Optional {
  static constexpr size_t kFixed = kCentred ? 7 : 5, kOut = kCentred ? 3 : 2;
  explicit Optional(const Attrs& attrs)
      : sums(attrs.integer_or("sums", 0) != 0 ? 1 : 0), again(attrs.integer_or("again", 0) != 0 ? 1 : 0) {}
  size_t betas() const { return kCentred ? again : 0; }
  size_t dres() const { return kFixed + betas(); }  // where it is, if it is there

  size_t sums, again;
};

template <bool kCentred>
void run_norm_grad(const KernelArgs& args, Stream& stream) {
  using Options = Optional<kCentred>;
  constexpr size_t kRstd = kCentred ? 4 : 3, kFixed = Options::kFixed, kOut = Options::kOut;
  const Options options(args.attrs);
  const size_t dres = options.dres();
  const TensorType& dy = args.in[0].type;
  const int width = static_cast<int>(dy.shape.last());
  ColumnGrads grads{.to = {}, .count = 0, .width = width, .fresh = args.attrs.integer_or("fresh", 0) != 0};
  for (const TensorArg& acc : args.out.subspan(1, kOut - 1)) grads.to[grads.count++] = acc.as<float>();
  if (options.sums != 0) grads.to[grads.count++] = args.out.back().as<float>();
  for_storage(dy.dtype, [&]<typename T>(T*) {
    const NormGradCall<T> call{
        .dy = args.in[0].as<T>(),
        .x = args.in[1].as<T>(),
        .gamma = args.in[2].as<T>(),
        .dres = args.in.size() > options.dres() + options.sums ? args.in[dres].as<T>() : nullptr,
        .mean = kCentred ? args.in[3].as<float>() : nullptr,
        .rstd = args.in[kRstd].as<float>(),
        .dx = args.out[0].as<T>(),
        .y = options.again != 0 ? args.out[kOut].as<T>() : nullptr,
        .beta = options.betas() != 0 ? args.in[kFixed].as<T>() : nullptr,
        .partials = reinterpret_cast<float*>(args.workspace.data()),
        .rows = static_cast<int>(dy.shape.rows()),
        .width = width,
        .inv_width = 1.0f / static_cast<float>(width),
        .plus = args.attrs.integer_or("plus_one", 0) != 0 ? 1.0f : 0.0f};
    launch<T>(call, plan_of(dy), grads, queue_of(stream));
  });
}

size_t norm_grad_workspace(const CallSignature& call, int) {
  const int64_t sums = static_cast<int64_t>(call.out.size()) - 1 - call.attrs->integer_or("again", 0);
  return sizeof(float) * static_cast<size_t>(plan_of(call.in[0]).blocks * sums * call.in[0].shape.last());
}

template <bool kCentred>
bool supports_norm_grad(const CallSignature& call) {
  using Options = Optional<kCentred>;
  constexpr size_t kFixed = Options::kFixed, kOut = Options::kOut;
  const Options options(*call.attrs);
  const size_t rows = call.in.size() - options.sums;  // with beta and dres, where there are any
  if (rows < options.dres() || rows > options.dres() + 1 ||
      call.out.size() != kOut + options.again + options.sums)
    return false;
  const DType storage = call.in[0].dtype;
  return is_storage(storage) && all_of_type(storage, call.in, 0, 3) &&
         all_of_type(DType::F32, call.in, 3, kFixed) && all_of_type(storage, call.in, kFixed, rows) &&
         all_of_type(DType::F32, call.in, rows, call.in.size()) && all_of_type(storage, call.out, 0, 1) &&
         all_of_type(DType::F32, call.out, 1, kOut) &&
         all_of_type(storage, call.out, kOut, kOut + options.again) &&
         all_of_type(DType::F32, call.out, kOut + options.again, call.out.size());
}

}  // namespace

void combine_columns(const ColumnGrads& grads, const float* partials, int blocks, cudaStream_t queue) {
  const auto columns = static_cast<unsigned>(grads.count * grads.width);
  combine_partials<<<(columns + 31) / 32, dim3(32, kCombineRows), 0, queue>>>(partials, blocks, grads);
}

void add_norm_grad_kernels(KernelRegistry& registry) {
  registry.add({"cuda.layer_norm_grad", Op::LayerNormGrad, supports_norm_grad<true>, norm_grad_workspace,
                run_norm_grad<true>});
  registry.add({"cuda.rms_norm_grad", Op::RmsNormGrad, supports_norm_grad<false>, norm_grad_workspace,
                run_norm_grad<false>});
}

}  // namespace tandem::cuda
