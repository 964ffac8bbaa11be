// Embedding lookup, and the gradient of the position table, which is dy summed over the batch.
#include "tandem/kernels/cuda/embedding/embedding.h"

#include <algorithm>

#include "tandem/kernels/cuda/device/cuda_check.h"
#include "tandem/kernels/cuda/elements.cuh"
#include "tandem/kernels/cuda/groups.cuh"
#include "tandem/kernels/cuda/register.h"

namespace tandem::cuda {
namespace {

constexpr int kRowsPerThread = 4;  // so many scattered reads are under way
constexpr int kMaxThreads = 256;

template <typename T>
struct LookUp {
  const int32_t* ids;
  const T* table;
  const T* positions;  // may be null
  int num_positions;
  const int32_t* own;  // where each token stands; null: at its place in the sequence
  const int32_t* at;   // the position of the first row of a sequence; null: 0
  T* y;
  int rows;  // of y
  int time;
  int width;
  int64_t first;
  int64_t table_rows;
};

// Block: kRowsPerThread rows; a thread has kSize columns at a time. An id that the table does not hold reads
// zeros.
template <typename T, int kSize>
__global__ void __launch_bounds__(kMaxThreads) look_up(const LookUp<T> call) {
  const int first_row = static_cast<int>(blockIdx.x) * kRowsPerThread;
  const int rows = min(call.rows - first_row, kRowsPerThread);
  const T* tokens[kRowsPerThread];
#pragma unroll
  for (int r = 0; r < kRowsPerThread; ++r) {
    const int64_t from = r < rows ? call.ids[first_row + r] - call.first : -1;
    tokens[r] = from >= 0 && from < call.table_rows ? call.table + from * call.width : nullptr;
  }
  for (int column = static_cast<int>(threadIdx.x) * kSize; column < call.width;
       column += static_cast<int>(blockDim.x) * kSize) {
    Group<T, kSize> token[kRowsPerThread] = {}, position[kRowsPerThread] = {};
#pragma unroll
    for (int r = 0; r < kRowsPerThread; ++r) {
      if (tokens[r] != nullptr) token[r] = load_group<kSize>(tokens[r] + column);
      if (call.positions != nullptr && r < rows) {
        const int first = call.at == nullptr ? 0 : *call.at;
        const int64_t time = call.own != nullptr
                                 ? call.own[first_row + r]
                                 : min(first + (first_row + r) % call.time, call.num_positions - 1);
        position[r] = load_group<kSize>(call.positions + time * call.width + column);
      }
    }
#pragma unroll
    for (int r = 0; r < kRowsPerThread; ++r) {
      if (r >= rows) continue;
      if (call.positions != nullptr) {
#pragma unroll
        for (int i = 0; i < kSize; ++i)
          token[r].value[i] = from_float<T>(to_float(token[r].value[i]) + to_float(position[r].value[i]));
      }
      store_group(call.y + static_cast<int64_t>(first_row + r) * call.width + column, token[r]);
    }
  }
}

template <typename T, int kSize>
void launch_look_up(const LookUp<T>& call, cudaStream_t queue) {
  const int groups = call.width / kSize, threads = std::min(kMaxThreads, (groups + 31) / 32 * 32);
  const int blocks = (call.rows + kRowsPerThread - 1) / kRowsPerThread;
  look_up<T, kSize><<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads), 0, queue>>>(call);
}

// ids, table [, positions [, own or the first's]] {first, valid, positions, at} -> y
void run_embedding(const KernelArgs& args, Stream& stream) {
  const TensorArg &ids = args.in[0], &table = args.in[1], &y = args.out[0];
  const bool by_token = args.attrs.integer_or("positions", 0) != 0;
  for_storage(y.type.dtype, [&]<typename T>(T*) {
    constexpr int kSize = Pack<T>::kSize;
    const LookUp<T> call{.ids = ids.as<int32_t>(),
                         .table = table.as<T>(),
                         .positions = args.in.size() > 2 ? args.in[2].as<T>() : nullptr,
                         .num_positions = args.in.size() > 2 ? static_cast<int>(args.in[2].type.shape[0]) : 0,
                         .own = by_token ? args.in[3].as<int32_t>() : nullptr,
                         .at = args.in.size() > 3 && !by_token ? args.in[3].as<int32_t>() : nullptr,
                         .y = y.as<T>(),
                         .rows = static_cast<int>(ids.elems()),
                         .time = static_cast<int>(ids.type.shape.last()),
                         .width = static_cast<int>(table.type.shape.last()),
                         .first = args.attrs.integer_or("first", 0),
                         .table_rows = args.attrs.integer_or("valid", table.type.shape.rows())};
    constexpr size_t kBytes = sizeof(Group<T, kSize>);
    if (call.width % kSize == 0 && is_aligned(call.table, kBytes) && is_aligned(call.positions, kBytes) &&
        is_aligned(call.y, kBytes)) {
      launch_look_up<T, kSize>(call, queue_of(stream));
    } else {
      launch_look_up<T, 1>(call, queue_of(stream));
    }
  });
  check_launch("embedding");
}

// acc[i] += sum over the batch of dy[b][i], kSize elements a thread.
template <typename T, int kSize>
__global__ void __launch_bounds__(kMaxThreads)
    sum_batch(const T* dy, int batch, int64_t per_sequence, float* acc, bool fresh) {
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * kMaxThreads + threadIdx.x) * kSize;
  if (at >= per_sequence) return;
  Group<float, kSize> sum = {};
#pragma unroll 8
  for (int b = 0; b < batch; ++b) {
    const Group<T, kSize> addend = load_group<kSize>(dy + b * per_sequence + at);
#pragma unroll
    for (int i = 0; i < kSize; ++i) sum.value[i] += to_float(addend.value[i]);
  }
  if (!fresh) {
    const Group<float, kSize> old = load_group<kSize>(acc + at);
#pragma unroll
    for (int i = 0; i < kSize; ++i) sum.value[i] += old.value[i];
  }
  store_group(acc + at, sum);
}

template <typename T, int kSize>
void launch_sum_batch(const TensorArg& dy, float* acc, bool fresh, cudaStream_t queue) {
  const int64_t batch = dy.type.shape[0], per_sequence = dy.elems() / batch;
  constexpr int64_t kPerBlock = kMaxThreads * kSize;
  sum_batch<T, kSize>
      <<<static_cast<unsigned>((per_sequence + kPerBlock - 1) / kPerBlock), kMaxThreads, 0, queue>>>(
          dy.as<T>(), static_cast<int>(batch), per_sequence, acc, fresh);
}

// acc, dy -> acc!; the table may have more positions than the batch has time steps.
void run_position_grad(const KernelArgs& args, Stream& stream) {
  const TensorArg &dy = args.in[1], &acc = args.out[0];
  const int64_t used = dy.elems() / dy.type.shape[0];
  const bool fresh = args.attrs.integer_or("fresh", 0) != 0;
  if (fresh && used < acc.elems()) {
    check(cudaMemsetAsync(acc.as<float>() + used, 0, static_cast<size_t>(acc.elems() - used) * sizeof(float),
                          queue_of(stream)),
          "position_grad");
  }
  for_storage(dy.type.dtype, [&]<typename T>(T*) {
    constexpr int kSize = Pack<T>::kSize;
    if (used % kSize == 0 && is_aligned(dy.data, sizeof(Group<T, kSize>)) &&
        is_aligned(acc.data, sizeof(Group<float, kSize>))) {
      launch_sum_batch<T, kSize>(dy, acc.as<float>(), fresh, queue_of(stream));
    } else {
      launch_sum_batch<T, 1>(dy, acc.as<float>(), fresh, queue_of(stream));
    }
  });
  check_launch("position_grad");
}

bool supports_embedding(const CallSignature& call) {
  if (call.in.size() < 2 || call.in.size() > 4 || call.in[0].dtype != DType::I32) return false;
  const DType storage = call.out[0].dtype;
  const bool tables = call.in[1].dtype == storage && (call.in.size() < 3 || call.in[2].dtype == storage);
  return is_storage(storage) && tables && (call.in.size() < 4 || call.in[3].dtype == DType::I32);
}

bool supports_position_grad(const CallSignature& call) {
  return call.in.size() == 2 && call.in[0].dtype == DType::F32 && is_storage(call.in[1].dtype) &&
         call.out[0].dtype == DType::F32 &&
         call.in[1].shape.elems() / call.in[1].shape[0] <= call.in[0].shape.elems();
}

}  // namespace

void add_embedding_kernels(KernelRegistry& registry) {
  registry.add({"cuda.embedding", Op::Embedding, supports_embedding, nullptr, run_embedding});
  add_embedding_grad_kernels(registry);
  registry.add({"cuda.position_grad", Op::PositionGrad, supports_position_grad, nullptr, run_position_grad});
}

}  // namespace tandem::cuda
