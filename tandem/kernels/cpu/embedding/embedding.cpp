// Embedding lookup, and its gradient without atomics: a stable radix sort brings the rows of one id
// together in ascending order of position, then each task owns some ids and some columns of the table and
// adds up their rows in that order. No sum is ever split, so no cut can change its bits; and each is made
// before it meets the accumulator.
#include <cstring>

#include "tandem/kernels/cpu/embedding/embedding_sort.h"
#include "tandem/kernels/cpu/pointwise/bias_grad.h"
#include "tandem/kernels/cpu/pointwise/pointwise.h"
#include "tandem/kernels/cpu/register.h"

#include "hwy/cache_control.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tandem/kernels/cpu/embedding/embedding.cpp"
#include "hwy/foreach_target.h"
#include "tandem/kernels/cpu/pointwise/pointwise-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {
namespace {

void run_embedding(const KernelArgs& args, cpu::IdRange range, Stream& stream) {
  const TensorArg& ids = args.in[0];
  const int64_t width = args.out[0].type.shape.last();
  const int64_t time = ids.type.shape.last();
  const bool positions = args.in.size() > 2;
  const bool by_token = args.attrs.integer_or("positions", 0) != 0;
  const int32_t* own = by_token ? args.in[3].as<int32_t>() : nullptr;  // where each token stands
  const int64_t first = args.in.size() > 3 && !by_token ? args.in[3].as<int32_t>()[0] : 0;
  const int64_t last = positions ? args.in[2].type.shape[0] - 1 : 0;
  cpu::with_storage(args.out[0].type.dtype, [&]<typename S>(S) {
    const S* table = args.in[1].as<S>();
    cpu::for_row_groups(stream.pool(), ids.elems(), width, [&](int64_t begin, int64_t end, int) {
      const FloatTag d;
      for (int64_t row = begin; row < end; ++row) {
        const int32_t id = ids.as<int32_t>()[row];
        const S* src = range.contains(id) ? table + (id - range.first) * width : nullptr;
        S* dst = args.out[0].as<S>() + row * width;
        if (!positions) {
          const size_t bytes = static_cast<size_t>(width) * sizeof(S);
          src != nullptr ? std::memcpy(dst, src, bytes) : std::memset(dst, 0, bytes);
          continue;
        }
        const int64_t at = own != nullptr ? own[row] : std::min(first + row % time, last);
        const S* pos = args.in[2].as<S>() + at * width;
        for_each_vector(static_cast<size_t>(width), [&](size_t i, auto part) {
          const auto token = src != nullptr ? load_float(d, src + i, part) : hn::Zero(d);
          store_float(d, hn::Add(token, load_float(d, pos + i, part)), dst + i, part);
        });
      }
    });
  });
}

// One id's rows of dy, in order, over kVectors vectors of columns. The rows are scattered, so the next
// one is fetched ahead.
template <size_t kVectors, typename S, typename A, typename P>
HWY_INLINE void add_rows_of_id(std::span<const cpu::IdRow> rows, const S* dy, int64_t width, P part,
                               const A* acc, A* dst) {
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  FloatVec sums[kVectors];
  for (size_t v = 0; v < kVectors; ++v) sums[v] = hn::Zero(d);
  for (size_t r = 0; r < rows.size(); ++r) {
    const S* src = dy + rows[r].row * width;
    if (kVectors > 1 && r + 2 < rows.size()) {
      const S* next = dy + rows[r + 2].row * width;
      for (size_t v = 0; v < kVectors; ++v) hwy::Prefetch(next + v * lanes);
    }
    for (size_t v = 0; v < kVectors; ++v) sums[v] = hn::Add(sums[v], load_float(d, src + v * lanes, part));
  }
  for (size_t v = 0; v < kVectors; ++v) {
    store_float(d, hn::Add(load_float(d, acc + v * lanes, part), sums[v]), dst + v * lanes, part);
  }
}

// Columns [0, n) of one id's rows; dy, acc and dst already point at the first of them.
template <typename S, typename A>
void add_columns_of_id(std::span<const cpu::IdRow> rows, const S* dy, int64_t width, size_t n, const A* acc,
                       A* dst) {
  constexpr size_t kStrip = 8;
  const size_t lanes = hn::Lanes(FloatTag());
  size_t i = 0;
  for (; i + kStrip * lanes <= n; i += kStrip * lanes) {
    add_rows_of_id<kStrip>(rows, dy + i, width, Whole{}, acc + i, dst + i);
  }
  for (; i + lanes <= n; i += lanes) add_rows_of_id<1>(rows, dy + i, width, Whole{}, acc + i, dst + i);
  if (i < n) add_rows_of_id<1>(rows, dy + i, width, Part{n - i}, acc + i, dst + i);
}

void run_embedding_grad(const KernelArgs& args, cpu::IdRange range, Stream& stream) {
  constexpr int64_t kRowsPerTask = 64;
  constexpr int64_t kColumnsPerTask = 512;
  const TensorArg& acc = args.in[0];
  const int64_t width = acc.type.shape.last();
  const auto sorted = cpu::sort_by_id(args.in[1], range, args.workspace);
  const int64_t num_rows = static_cast<int64_t>(sorted.size());
  const int64_t blocks = (width + kColumnsPerTask - 1) / kColumnsPerTask;
  const int64_t pieces = (num_rows + kRowsPerTask - 1) / kRowsPerTask;
  cpu::with_storage(args.in[2].type.dtype, [&]<typename S>(S) {
    cpu::with_storage(acc.type.dtype, [&]<typename A>(A) {
      stream.pool().parallel_for(pieces * blocks, [&](int64_t task, int) {
        const int64_t column = task % blocks * kColumnsPerTask;
        const size_t n = static_cast<size_t>(std::min(kColumnsPerTask, width - column));
        const int64_t begin = task / blocks * kRowsPerTask;
        // The ids whose first row lies in this piece, with all their rows.
        for (auto run = cpu::first_run(sorted, begin, kRowsPerTask); !run.rows.empty();
             run = cpu::next_run(sorted, run)) {
          const int64_t offset = run.rows[0].id * width + column;
          add_columns_of_id(run.rows, args.in[2].as<S>() + column, width, n, acc.as<A>() + offset,
                            args.out[0].as<A>() + offset);
        }
      });
    });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem {
HWY_EXPORT(run_embedding);
HWY_EXPORT(run_embedding_grad);

namespace cpu {
namespace {

bool supports_embedding(const CallSignature& call) {
  if (call.in.size() < 2 || call.in.size() > 4 || call.in[0].dtype != DType::I32) return false;
  const DType storage = call.out[0].dtype;
  const bool tables = call.in[1].dtype == storage && (call.in.size() < 3 || call.in[2].dtype == storage);
  return is_storage(storage) && tables && (call.in.size() < 4 || call.in[3].dtype == DType::I32);
}
void embedding(const KernelArgs& args, Stream& stream) {
  if (args.attrs.integer_or("positions", 0) != 0) checked_range(args.in[3], args.in[2], {});
  HWY_DYNAMIC_DISPATCH(run_embedding)(args, checked_range(args.in[0], args.in[1], args.attrs), stream);
}

bool supports_embedding_grad(const CallSignature& call) {
  return call.in.size() == 3 && is_storage(call.in[0].dtype) && call.in[1].dtype == DType::I32 &&
         is_storage(call.in[2].dtype) && call.out[0].dtype == call.in[0].dtype;
}
size_t embedding_grad_workspace(const CallSignature& call, int) {
  return sort_workspace(call.in[1].shape.elems());
}
void embedding_grad(const KernelArgs& args, Stream& stream) {
  HWY_DYNAMIC_DISPATCH(run_embedding_grad)(args, checked_range(args.in[1], args.in[0], args.attrs), stream);
}

// A position table's gradient is the column sums of dy[B, T * d]. The table may have rows past T.
int64_t positions_width(const TensorType& dy) { return dy.shape.elems() / dy.shape[0]; }
bool supports_position_grad(const CallSignature& call) {
  return call.in.size() == 2 && is_storage(call.in[0].dtype) && is_storage(call.in[1].dtype) &&
         call.out[0].dtype == call.in[0].dtype && positions_width(call.in[1]) <= call.in[0].shape.elems();
}
size_t position_grad_workspace(const CallSignature& call, int) {
  return column_sums_workspace(call.in[1].shape[0], positions_width(call.in[1]));
}
void position_grad(const KernelArgs& args, Stream& stream) {
  const auto used = [&](const TensorArg& table) {
    return TensorArg{table.data, {table.type.dtype, Shape{positions_width(args.in[1].type)}}};
  };
  add_column_sums(args.in[1], used(args.in[0]), used(args.out[0]), args.workspace, stream);
}

}  // namespace

void add_embedding_kernels(KernelRegistry& registry) {
  registry.add({"cpu.embedding", Op::Embedding, supports_embedding, nullptr, embedding});
  registry.add({"cpu.embedding_grad", Op::EmbeddingGrad, supports_embedding_grad, embedding_grad_workspace,
                embedding_grad});
  registry.add({"cpu.position_grad", Op::PositionGrad, supports_position_grad, position_grad_workspace,
                position_grad});
}

}  // namespace cpu
}  // namespace tandem
#endif
