// LayerNorm and RmsNorm, alone or after a residual add, in one pass over memory: a row lives in the registers
// of its warps, one warp up to 1024 elements of 16 bits, between the read and the write. The variance is the
// sum of squared distances from the mean, so a large mean costs no digits. RmsNorm is the same with a mean of
// 0.
#include "tandem/kernels/cuda/norm/norm.cuh"

#include "tandem/kernels/cuda/device/cuda_check.h"
#include "tandem/kernels/cuda/register.h"

namespace tandem::cuda {
namespace {

constexpr int kMaxPacks = 4;       // of a thread
constexpr int kWarpsPerBlock = 4;  // where rows need fewer, a block takes several

template <typename T>
struct NormCall {
  const T* a;
  const T* b;  // null: nothing is added to a
  const T* gamma;
  const T* beta;  // null for RmsNorm
  T* sum;         // null where nothing is added
  T* y;
  float* mean;  // null for RmsNorm
  float* rstd;
  int64_t rows;
  int width;
  float inv_width;
  float eps;
  float plus;  // added to gamma
};

// kPacks packs a thread, pack p of thread t being number p * blockDim.x + t of the row; block (threads of a
// row, rows of a block).
template <typename T, int kPacks, bool kAdd>
__global__ void __launch_bounds__(32 * kMaxWarps) norm_in_registers(const NormCall<T> call) {
  constexpr int kSize = Pack<T>::kSize;
  __shared__ float scratch[2][1][kMaxWarps];
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  const int64_t begin = row * call.width;
  const auto column = [](int p) { return static_cast<int>(p * blockDim.x + threadIdx.x) * kSize; };
  const auto holds = [&](int p) { return row < call.rows && column(p) < call.width; };

  Pack<T> a[kPacks], b[kPacks];
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    if (!holds(p)) continue;
    a[p] = load_pack_once(call.a + begin + column(p));
    if constexpr (kAdd) b[p] = load_pack_once(call.b + begin + column(p));
  }
  float x[kPacks][kSize];
  float sum[1] = {0}, squares[1] = {0};
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    if (!holds(p)) continue;
    to_floats(a[p].value, x[p]);
    if constexpr (kAdd) {
      float addend[kSize];
      to_floats(b[p].value, addend);
#pragma unroll
      for (int i = 0; i < kSize; ++i) x[p][i] += addend[i];
      const Pack<T> rounded = round_pack<T>(x[p]);
      store_pack_once(call.sum + begin + column(p), rounded);
      to_floats(rounded.value, x[p]);
    }
#pragma unroll
    for (int i = 0; i < kSize; ++i) sum[0] += x[p][i];
  }

  float mean = 0;
  const bool centred = call.beta != nullptr;
  if (centred) {
    row_sums(sum, scratch[0]);
    mean = sum[0] * call.inv_width;
  }
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    if (!holds(p)) continue;
#pragma unroll
    for (int i = 0; i < kSize; ++i) squares[0] = fmaf(x[p][i] - mean, x[p][i] - mean, squares[0]);
  }
  row_sums(squares, scratch[1]);
  const float rstd = rsqrtf(squares[0] * call.inv_width + call.eps);

#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    if (!holds(p)) continue;
    float gamma[kSize], y[kSize] = {};
    to_floats(load_pack(call.gamma + column(p)).value, gamma);
#pragma unroll
    for (int i = 0; i < kSize; ++i) gamma[i] += call.plus;
    if (centred) to_floats(load_pack(call.beta + column(p)).value, y);
#pragma unroll
    for (int i = 0; i < kSize; ++i) y[i] = norm_output((x[p][i] - mean) * rstd, gamma[i], y[i]);
    store_pack(call.y + begin + column(p), round_pack<T>(y));
  }
  if (row < call.rows && threadIdx.x == 0) {
    if (centred) call.mean[row] = mean;
    call.rstd[row] = rstd;
  }
}

// Rows of any width and alignment, read again for each sum; a thread reads of `sum` only what it wrote.
template <typename T>
__global__ void __launch_bounds__(kAnyWidthThreads) norm_any_width(const NormCall<T> call) {
  __shared__ float scratch[2][1][kMaxWarps];
  const int64_t row = blockIdx.x, begin = row * call.width;
  const int first = static_cast<int>(threadIdx.x);
  const T* x = call.a + begin;
  if (call.b != nullptr) {
    for (int i = first; i < call.width; i += kAnyWidthThreads)
      call.sum[begin + i] = from_float<T>(to_float(x[i]) + to_float(call.b[begin + i]));
    x = call.sum + begin;
  }
  float mean = 0;
  const bool centred = call.beta != nullptr;
  if (centred) {
    float sum[1] = {0};
    for (int i = first; i < call.width; i += kAnyWidthThreads) sum[0] += to_float(x[i]);
    row_sums(sum, scratch[0]);
    mean = sum[0] * call.inv_width;
  }
  float squares[1] = {0};
  for (int i = first; i < call.width; i += kAnyWidthThreads) {
    const float distance = to_float(x[i]) - mean;
    squares[0] = fmaf(distance, distance, squares[0]);
  }
  row_sums(squares, scratch[1]);
  const float rstd = rsqrtf(squares[0] * call.inv_width + call.eps);
  for (int i = first; i < call.width; i += kAnyWidthThreads) {
    const float shift = centred ? to_float(call.beta[i]) : 0.0f;
    const float x_hat = (to_float(x[i]) - mean) * rstd;
    call.y[begin + i] = from_float<T>(norm_output(x_hat, to_float(call.gamma[i]) + call.plus, shift));
  }
  if (first == 0) {
    if (centred) call.mean[row] = mean;
    call.rstd[row] = rstd;
  }
}

template <typename T, int kPacks>
void launch_in_registers(const NormCall<T>& call, int warps, cudaStream_t queue) {
  const int rows_per_block = std::max(1, kWarpsPerBlock / warps);
  const dim3 block(static_cast<unsigned>(32 * warps), static_cast<unsigned>(rows_per_block));
  const auto grid = static_cast<unsigned>((call.rows + rows_per_block - 1) / rows_per_block);
  if (call.b != nullptr) {
    norm_in_registers<T, kPacks, true><<<grid, block, 0, queue>>>(call);
  } else {
    norm_in_registers<T, kPacks, false><<<grid, block, 0, queue>>>(call);
  }
}

template <typename T>
void launch(const NormCall<T>& call, cudaStream_t queue) {
  const int packs = call.width / Pack<T>::kSize;
  const int warps = std::max(1, (packs + 32 * kMaxPacks - 1) / (32 * kMaxPacks));
  if (warps > kMaxWarps ||
      !rows_are_packs<T>(call.width, {call.a, call.b, call.gamma, call.beta, call.sum, call.y})) {
    norm_any_width<T><<<static_cast<unsigned>(call.rows), kAnyWidthThreads, 0, queue>>>(call);
  } else {
    switch ((packs + 32 * warps - 1) / (32 * warps)) {
      case 1: launch_in_registers<T, 1>(call, warps, queue); break;
      case 2: launch_in_registers<T, 2>(call, warps, queue); break;
      case 3: launch_in_registers<T, 3>(call, warps, queue); break;
      default: launch_in_registers<T, kMaxPacks>(call, warps, queue);
    }
  }
  check_launch("norm");
}

// x, gamma [, beta] -> y [, mean], rstd, or a, b, gamma [, beta] -> sum, y [, mean], rstd
template <bool kCentred, bool kAdd>
void run_norm(const KernelArgs& args, Stream& stream) {
  constexpr size_t kGamma = kAdd ? 2 : 1, kY = kAdd ? 1 : 0;
  const Shape& shape = args.in[0].type.shape;
  for_storage(args.in[0].type.dtype, [&]<typename T>(T*) {
    launch<T>({.a = args.in[0].as<T>(),
               .b = kAdd ? args.in[1].as<T>() : nullptr,
               .gamma = args.in[kGamma].as<T>(),
               .beta = kCentred ? args.in[kGamma + 1].as<T>() : nullptr,
               .sum = kAdd ? args.out[0].as<T>() : nullptr,
               .y = args.out[kY].as<T>(),
               .mean = kCentred ? args.out[kY + 1].as<float>() : nullptr,
               .rstd = args.out[kY + (kCentred ? 2 : 1)].as<float>(),
               .rows = shape.rows(),
               .width = static_cast<int>(shape.last()),
               .inv_width = 1.0f / static_cast<float>(shape.last()),
               .eps = static_cast<float>(args.attrs.real("eps")),
               .plus = args.attrs.integer_or("plus_one", 0) != 0 ? 1.0f : 0.0f},
              queue_of(stream));
  });
}

template <bool kCentred, bool kAdd>
bool supports_norm(const CallSignature& call) {
  constexpr size_t kIn = 2 + (kCentred ? 1 : 0) + (kAdd ? 1 : 0), kRowsOut = kAdd ? 2 : 1;
  constexpr size_t kOut = kRowsOut + (kCentred ? 2 : 1);
  if (call.in.size() != kIn || call.out.size() != kOut) return false;
  const DType storage = call.in[0].dtype;
  return is_storage(storage) && all_of_type(storage, call.in, 0, kIn) &&
         all_of_type(storage, call.out, 0, kRowsOut) && all_of_type(DType::F32, call.out, kRowsOut, kOut);
}

template <bool kCentred, bool kAdd>
void add_norm(KernelRegistry& registry, const char* name, Op op) {
  registry.add({name, op, supports_norm<kCentred, kAdd>, nullptr, run_norm<kCentred, kAdd>});
}

}  // namespace

void add_norm_kernels(KernelRegistry& registry) {
  add_norm<true, false>(registry, "cuda.layer_norm", Op::LayerNorm);
  add_norm<true, true>(registry, "cuda.add_layer_norm", Op::AddLayerNorm);
  add_norm<false, false>(registry, "cuda.rms_norm", Op::RmsNorm);
  add_norm<false, true>(registry, "cuda.add_rms_norm", Op::AddRmsNorm);
  add_norm_grad_kernels(registry);
  add_qk_norm_kernels(registry);
}

}  // namespace tandem::cuda
