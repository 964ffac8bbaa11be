// The pass of the norms' gradients over memory, for rows of whole packs. A row belongs to a team of one or a
// few warps. Teams wait for nobody: each keeps its own next rows under way into shared memory, and a thread
// reads only the copies it made itself, so the row's sums are all that the warps of a team exchange. A thread
// has the same columns in all its rows and keeps their sums in registers until the end, when the block adds
// up its teams.
#pragma once

#include "tandem/kernels/cuda/async_copy.cuh"
#include "tandem/kernels/cuda/norm/norm.cuh"

namespace tandem::cuda {

template <typename T>
struct NormGradCall {
  const T* dy;
  const T* x;
  const T* gamma;
  const T* dres;      // added to the rounded dx, as an Add after this would; may be null
  const float* mean;  // null for RmsNorm
  const float* rstd;
  T* dx;            // may be dy, x or dres
  T* y;             // the norm's output, given again; may be null
  const T* beta;    // with y; null for RmsNorm
  float* partials;  // [blocks][dgamma [, dbeta] [, sum of dx]][width]
  int rows;
  int width;
  float inv_width;
  float plus;  // added to gamma

  __device__ float mean_of(int row) const { return mean == nullptr || row >= rows ? 0.0f : mean[row]; }
  __device__ float rstd_of(int row) const { return row >= rows ? 0.0f : rstd[row]; }
};

// dx of one element before it is rounded, from the row's means of g and of g x_hat. A product that no later
// sum may fuse with.
__device__ __forceinline__ float input_gradient(float g, float x_hat, float mean_g, float mean_gx,
                                                float rstd) {
  return __fmul_rn(rstd, fmaf(-x_hat, mean_gx, g - mean_g));
}

// A pack of the norm's own output. Beta is read here and not kept: registers are dear, and it is in the
// cache.
template <typename T>
__device__ __forceinline__ Pack<T> output_again(const NormGradCall<T>& call, int column,
                                                const float (&x_hat)[Pack<T>::kSize],
                                                const float (&gamma)[Pack<T>::kSize]) {
  float values[Pack<T>::kSize] = {};
  if (call.beta != nullptr) to_floats(load_pack(call.beta + column).value, values);
#pragma unroll
  for (int i = 0; i < Pack<T>::kSize; ++i) values[i] = norm_output(x_hat[i], gamma[i], values[i]);
  return round_pack<T>(values);
}

// How the rows are laid over the GPU.
template <int kPacksOfThread, int kWarpsOfBlock, int kBlocksOfProcessor, int kRowsUnderWay>
struct RowTuning {
  static constexpr int kPacks = kPacksOfThread;
  static constexpr int kBlockWarps = kWarpsOfBlock;  // at most: whole teams
  static constexpr int kBlocks = kBlocksOfProcessor;
  static constexpr int kStages = kRowsUnderWay;  // of each team
  static constexpr int kTensors = 3;             // of a stage: dy, x, dres
  static constexpr int kWarpSlots = kStages * kTensors * kPacks * 32;
  static_assert(kStages >= 2, "the sums of a block must find room where its rows were");
};

// The sums over a team of two values of each thread, which every thread gets with the same bits. A team does
// not use the same scratch twice in a row.
__device__ __forceinline__ float2 team_sums(float2 sums, float2* scratch) {
  sums = {warp_sum(sums.x), warp_sum(sums.y)};
  const int warps = static_cast<int>(blockDim.x) / 32, first = static_cast<int>(threadIdx.y) * warps;
  if (warps == 1) return sums;
  if (threadIdx.x % 32 == 0) scratch[first + threadIdx.x / 32] = sums;
  asm volatile("bar.sync %0, %1;" ::"r"(threadIdx.y + 1), "r"(blockDim.x) : "memory");
  sums = {0, 0};
#pragma unroll 4
  for (int warp = first; warp < first + warps; ++warp) {
    sums.x += scratch[warp].x;
    sums.y += scratch[warp].y;
  }
  return sums;
}

template <typename T>
__device__ __forceinline__ void to_gains(const Pack<T>& gamma, float plus, float (&gains)[Pack<T>::kSize]) {
  to_floats(gamma.value, gains);
#pragma unroll
  for (int i = 0; i < Pack<T>::kSize; ++i) gains[i] += plus;
}

// Adds a pack's share to the sums over a row of g (x - mean) and of g, which is dy times (gamma + plus).
template <bool kCentred, typename T>
__device__ __forceinline__ void add_products(const Pack<T>& dys, const Pack<T>& xs, const Pack<T>& gamma,
                                             float plus, float mean, float2& sums) {
  constexpr int kSize = Pack<T>::kSize;
  float dy[kSize], x[kSize], weights[kSize];
  to_floats(dys.value, dy);
  to_floats(xs.value, x);
  to_gains(gamma, plus, weights);
#pragma unroll
  for (int i = 0; i < kSize; ++i) {
    const float g = dy[i] * weights[i];
    sums.x = fmaf(g, x[i] - mean, sums.x);
    if constexpr (kCentred) sums.y += g;
  }
}

template <typename T>
__device__ __forceinline__ Pack<T> sum_of(const Pack<T>& a, const Pack<T>& b) {
  float sum[Pack<T>::kSize], other[Pack<T>::kSize];
  to_floats(a.value, sum);
  to_floats(b.value, other);
#pragma unroll
  for (int i = 0; i < Pack<T>::kSize; ++i) sum[i] += other[i];
  return round_pack<T>(sum);
}

// A thread's sums, to [sum][width].
template <int kSums, int kPacks, int kSize>
__device__ __forceinline__ void store_columns(const float (&sums)[kSums][kPacks][kSize], int width,
                                              float* to) {
#pragma unroll
  for (int s = 0; s < kSums; ++s) {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int column = static_cast<int>(p * blockDim.x + threadIdx.x) * kSize;
      if (column >= width) continue;
      const float* values = sums[s][p];
#pragma unroll
      for (int i = 0; i < kSize; i += 4)
        store_pack(to + s * width + column + i, {values[i], values[i + 1], values[i + 2], values[i + 3]});
    }
  }
}

// What the teams of a block have summed, each in columns of its own, becomes the block's partial sums.
__device__ __forceinline__ void add_teams(const float* team_columns, int columns, float* partials) {
  const int teams = static_cast<int>(blockDim.y), width = static_cast<int>(blockDim.x);
  const int thread = static_cast<int>(threadIdx.y) * width + static_cast<int>(threadIdx.x);
  for (int at = 4 * thread; at < columns; at += 4 * teams * width) {
    Pack<float> sum = load_pack(team_columns + at);
    for (int team = 1; team < teams; ++team) {
      const Pack<float> other = load_pack(team_columns + team * columns + at);
#pragma unroll
      for (int i = 0; i < 4; ++i) sum.value[i] += other.value[i];
    }
    store_pack(partials + at, sum);
  }
}

// Block (threads of a row, teams). Pack p of thread t is number p * blockDim.x + t of the row.
template <typename T, typename Tuning, bool kCentred, bool kSumDx>
__global__ void __launch_bounds__(32 * Tuning::kBlockWarps, Tuning::kBlocks)
    norm_grad_rows(const NormGradCall<T> call) {
  constexpr int kSize = Pack<T>::kSize, kPacks = Tuning::kPacks, kStages = Tuning::kStages;
  constexpr int kSums = 1 + (kCentred ? 1 : 0) + (kSumDx ? 1 : 0), kDxSum = kSums - 1;
  extern __shared__ int4 shared[];
  __shared__ float2 scratch[2][Tuning::kBlockWarps];
  const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  const int teams = static_cast<int>(blockDim.y), step = static_cast<int>(gridDim.x) * teams;
  const auto column = [](int p) { return static_cast<int>(p * blockDim.x + threadIdx.x) * kSize; };
  const auto holds = [&](int p) { return column(p) < call.width; };

  // Packs [warp][stage][dy, x, dres][pack][lane].
  Pack<T>* const ring = reinterpret_cast<Pack<T>*>(shared) + thread / 32 * Tuning::kWarpSlots + thread % 32;
  const auto slot = [&](int stage, int tensor, int p) {
    return ring + ((stage * Tuning::kTensors + tensor) * kPacks + p) * 32;
  };
  const auto fetch = [&](int row, int stage) {
    if (row < call.rows) {
      const int64_t begin = static_cast<int64_t>(row) * call.width;
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        if (!holds(p)) continue;
        copy_async(slot(stage, 0, p), call.dy + begin + column(p));
        copy_async(slot(stage, 1, p), call.x + begin + column(p));
        if (call.dres != nullptr) copy_async(slot(stage, 2, p), call.dres + begin + column(p));
      }
    }
    end_copy_group();
  };

  const int first = static_cast<int>(blockIdx.x) * teams + static_cast<int>(threadIdx.y);
  for (int stage = 0; stage < kStages; ++stage) fetch(first + stage * step, stage);
  Pack<T> gamma[kPacks] = {};
  float column_sums[kSums][kPacks][kSize] = {};
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    if (holds(p)) gamma[p] = load_pack(call.gamma + column(p));
  }
  float next_mean = call.mean_of(first), next_rstd = call.rstd_of(first);
  int stage = 0, parity = 0;
  for (int row = first; row < call.rows; row += step) {
    const float mean = next_mean, rstd = next_rstd;
    next_mean = call.mean_of(row + step);
    next_rstd = call.rstd_of(row + step);
    wait_copy_groups<kStages - 1>();

    float2 sums = {0, 0};  // of g (x - mean) and g
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (holds(p))
        add_products<kCentred>(*slot(stage, 0, p), *slot(stage, 1, p), gamma[p], call.plus, mean, sums);
    }
    sums = team_sums(sums, scratch[parity]);
    parity ^= 1;

    const float mean_gx = sums.x * rstd * call.inv_width, mean_g = sums.y * call.inv_width;
    const int64_t begin = static_cast<int64_t>(row) * call.width;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (!holds(p)) continue;
      const int64_t at = begin + column(p);
      float dy[kSize], x_hat[kSize], weights[kSize], values[kSize];
      to_floats(slot(stage, 0, p)->value, dy);
      to_floats(slot(stage, 1, p)->value, x_hat);
      to_gains(gamma[p], call.plus, weights);
#pragma unroll
      for (int i = 0; i < kSize; ++i) {
        x_hat[i] = (x_hat[i] - mean) * rstd;
        column_sums[0][p][i] = fmaf(dy[i], x_hat[i], column_sums[0][p][i]);
        if constexpr (kCentred) column_sums[1][p][i] += dy[i];
        values[i] = input_gradient(dy[i] * weights[i], x_hat[i], mean_g, mean_gx, rstd);
      }
      if (call.y != nullptr) store_pack(call.y + at, output_again(call, column(p), x_hat, weights));
      Pack<T> dx = round_pack<T>(values);
      if (call.dres != nullptr) dx = sum_of(dx, *slot(stage, 2, p));
      if constexpr (kSumDx) {
        to_floats(dx.value, values);
#pragma unroll
        for (int i = 0; i < kSize; ++i) column_sums[kDxSum][p][i] += values[i];
      }
      store_pack(call.dx + at, dx);
    }
    fetch(row + kStages * step, stage);
    stage = stage + 1 == kStages ? 0 : stage + 1;
  }

  // A team that had a row less passes its barrier once more: racecheck counts barriers, and takes what comes
  // after a different number of them for unordered.
  const auto num_rows = [&](int from) { return from < call.rows ? (call.rows - 1 - from) / step + 1 : 0; };
  if (num_rows(first) < num_rows(static_cast<int>(blockIdx.x) * teams)) team_sums({0, 0}, scratch[parity]);

  // No copy is under way any more. Floats [team][sum][width].
  __syncthreads();
  float* const team_columns = reinterpret_cast<float*>(shared);
  const int columns = kSums * call.width;
  store_columns(column_sums, call.width, team_columns + static_cast<int>(threadIdx.y) * columns);
  __syncthreads();
  add_teams(team_columns, columns, call.partials + static_cast<int64_t>(blockIdx.x) * columns);
}

}  // namespace tandem::cuda
