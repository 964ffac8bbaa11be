// Column sums: the gradient of a bias, and of anything else broadcast over rows.
#include "tandem/kernels/cpu/pointwise/bias_grad.h"

#include "tandem/kernels/cpu/pointwise/pointwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tandem/kernels/cpu/pointwise/bias_grad.cpp"
#include "hwy/foreach_target.h"
#include "tandem/kernels/cpu/pointwise/pointwise-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {
namespace {

// sums[0, n) += rows 0, 1, .. of src, in that order. Eight rows at a time, so that the running sums are
// read and written once for eight rows.
template <typename S>
void sum_rows(const S* src, int64_t stride, int64_t rows, int64_t n, float* sums) {
  const FloatTag d;
  int64_t row = 0;
  for (; row + 8 <= rows; row += 8) {
    const S* r = src + row * stride;
    for_each_vector(static_cast<size_t>(n), [&](size_t i, auto part) {
      auto sum = load_float(d, sums + i, part);
      for (int64_t k = 0; k < 8; ++k) sum = hn::Add(sum, load_float(d, r + k * stride + i, part));
      store_float(d, sum, sums + i, part);
    });
  }
  for (; row < rows; ++row) {
    const S* r = src + row * stride;
    for_each_vector(static_cast<size_t>(n), [&](size_t i, auto part) {
      store_float(d, hn::Add(load_float(d, sums + i, part), load_float(d, r + i, part)), sums + i, part);
    });
  }
}

void sum_block(DType dtype, const void* src, int64_t stride, int64_t rows, int64_t n, float* sums) {
  cpu::with_storage(dtype,
                    [&]<typename S>(S) { sum_rows(static_cast<const S*>(src), stride, rows, n, sums); });
}

template <typename A>
void add_partials_to(const float* partials, int64_t count, int64_t stride, const A* acc, A* dst, int64_t n) {
  const FloatTag d;
  for_each_vector(static_cast<size_t>(n), [&](size_t i, auto part) {
    auto sum = load_float(d, partials + i, part);
    for (int64_t k = 1; k < count; ++k) sum = hn::Add(sum, load_float(d, partials + k * stride + i, part));
    store_float(d, hn::Add(load_float(d, acc + i, part), sum), dst + i, part);
  });
}

void add_partials_block(DType dtype, const float* partials, int64_t count, int64_t stride, const void* acc,
                        void* dst, int64_t n) {
  cpu::with_storage(dtype, [&]<typename A>(A) {
    add_partials_to(partials, count, stride, static_cast<const A*>(acc), static_cast<A*>(dst), n);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem {
HWY_EXPORT(sum_block);
HWY_EXPORT(add_partials_block);

namespace cpu {
namespace {

// A task sums one block of columns of one chunk of rows. Matrices wide enough to give every core a block
// of columns are not cut into chunks of rows at all.
constexpr int64_t kBlock = 1024;
constexpr int64_t kManyBlocks = 32;

struct ColumnCut {
  ColumnCut(int64_t rows, int64_t num_columns)
      : width(num_columns), blocks((num_columns + kBlock - 1) / kBlock) {
    const RowChunks cut(rows);
    chunks = blocks >= kManyBlocks ? 1 : cut.count;
    rows_per_chunk = blocks >= kManyBlocks ? rows : cut.per_chunk;
  }
  int64_t width;
  int64_t blocks;
  int64_t chunks;
  int64_t rows_per_chunk;
};

const std::byte* at(const TensorArg& arg, int64_t elem) {
  return arg.as<std::byte>() + elem * dtype_bytes(arg.type.dtype);
}
std::byte* at_mutable(const TensorArg& arg, int64_t elem) {
  return arg.as<std::byte>() + elem * dtype_bytes(arg.type.dtype);
}

bool supports_bias_grad(const CallSignature& call) {
  return call.in.size() == 2 && is_storage(call.in[0].dtype) && is_storage(call.in[1].dtype) &&
         call.in[0].dtype == call.out[0].dtype && call.in[0].shape.elems() == call.in[1].shape.last();
}
size_t bias_grad_workspace(const CallSignature& call, int) {
  return column_sums_workspace(call.in[1].shape.rows(), call.in[1].shape.last());
}
void bias_grad(const KernelArgs& args, Stream& stream) {
  add_column_sums(args.in[1], args.in[0], args.out[0], args.workspace, stream);
}

}  // namespace

void add_partials(const float* partials, int64_t count, int64_t stride, const TensorArg& acc,
                  const TensorArg& dst, Stream& stream) {
  const auto add_block = HWY_DYNAMIC_DISPATCH(add_partials_block);
  for_pieces(stream.pool(), acc.elems(), kBlock, [&](int64_t begin, int64_t end, int) {
    add_block(acc.type.dtype, partials + begin, count, stride, at(acc, begin), at_mutable(dst, begin),
              end - begin);
  });
}

size_t column_sums_workspace(int64_t rows, int64_t width) {
  return static_cast<size_t>(ColumnCut(rows, width).chunks * width) * sizeof(float);
}

void add_column_sums(const TensorArg& src, const TensorArg& acc, const TensorArg& dst,
                     std::span<std::byte> workspace, Stream& stream) {
  const int64_t width = acc.elems();
  const int64_t rows = src.elems() / width;
  const ColumnCut cut(rows, width);
  float* partials = reinterpret_cast<float*>(workspace.data());
  const auto sum = HWY_DYNAMIC_DISPATCH(sum_block);
  stream.pool().parallel_for(cut.chunks * cut.blocks, [&](int64_t task, int) {
    const int64_t chunk = task / cut.blocks;
    const int64_t column = task % cut.blocks * kBlock;
    const int64_t n = std::min(kBlock, width - column);
    const int64_t first_row = chunk * cut.rows_per_chunk;
    float* sums = partials + chunk * width + column;
    std::fill_n(sums, n, 0.0f);
    sum(src.type.dtype, at(src, first_row * width + column), width,
        std::min(cut.rows_per_chunk, rows - first_row), n, sums);
  });
  add_partials(partials, cut.chunks, width, acc, dst, stream);
}

void add_bias_grad_kernels(KernelRegistry& registry) {
  registry.add({"cpu.bias_grad", Op::BiasGrad, supports_bias_grad, bias_grad_workspace, bias_grad});
}

}  // namespace cpu
}  // namespace tandem
#endif
