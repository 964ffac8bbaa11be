// Reference ops that move or convert elements without arithmetic.
#include "tandem/kernels/cpu/ref/ref_tensor.h"

namespace tandem::cpu::ref {
namespace {

// Copies `cols` columns of every row from column `src_col` of src to column `dst_col` of dst.
void copy_columns(const TensorArg& src, int64_t src_col, const TensorArg& dst, int64_t dst_col,
                  int64_t cols) {
  const int64_t rows = dst.type.shape.rows();
  const int64_t src_cols = src.type.shape.last(), dst_cols = dst.type.shape.last();
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < cols; ++i) {
      set(dst, row * dst_cols + dst_col + i, get(src, row * src_cols + src_col + i));
    }
  }
}

void run_concat(const KernelArgs& args, Stream&) {
  int64_t at = 0;
  for (const TensorArg& part : args.in) {
    copy_columns(part, 0, args.out[0], at, part.type.shape.last());
    at += part.type.shape.last();
  }
}

void run_slice(const KernelArgs& args, Stream&) {
  copy_columns(args.in[0], args.attrs.integer("begin"), args.out[0], 0, args.attrs.integer("size"));
}

void run_zeros(const KernelArgs& args, Stream&) {
  for (int64_t i = 0; i < args.out[0].elems(); ++i) set(args.out[0], i, 0);
}

// Cast, and Copy, which keeps the type.
void run_copy(const KernelArgs& args, Stream&) {
  for (int64_t i = 0; i < args.out[0].elems(); ++i) set(args.out[0], i, get(args.in[0], i));
}

}  // namespace

void add_shape(KernelRegistry& registry) {
  add(registry, Op::Concat, run_concat);
  add(registry, Op::Slice, run_slice);
  add(registry, Op::Zeros, run_zeros);
  add(registry, Op::Cast, run_copy);
  add(registry, Op::Copy, run_copy);
}

}  // namespace tandem::cpu::ref
