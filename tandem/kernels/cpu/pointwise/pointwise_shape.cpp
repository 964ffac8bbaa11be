#include "tandem/kernels/cpu/pointwise/pointwise_shape.h"

#include <cstring>

#include "tandem/kernels/cpu/pointwise/pointwise.h"

namespace tandem::cpu {
namespace {

int64_t row_bytes(const TensorType& type) { return type.shape.last() * dtype_bytes(type.dtype); }

// Copies `bytes` of every row between two matrices with their own strides.
void copy_columns(ThreadPool& pool, int64_t rows, int64_t bytes, const std::byte* src, int64_t src_stride,
                  std::byte* dst, int64_t dst_stride) {
  for_row_groups(pool, rows, bytes / 4, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      std::memcpy(dst + row * dst_stride, src + row * src_stride, static_cast<size_t>(bytes));
    }
  });
}

bool supports_concat(const CallSignature& call) {
  int64_t width = 0;
  for (const TensorType& type : call.in) {
    if (type.dtype != call.out[0].dtype || type.shape.rows() != call.out[0].shape.rows()) return false;
    width += type.shape.last();
  }
  return width == call.out[0].shape.last();
}

void concat(const KernelArgs& args, Stream& stream) {
  const TensorArg& y = args.out[0];
  const int64_t stride = row_bytes(y.type);
  std::byte* dst = y.as<std::byte>();
  for (const TensorArg& x : args.in) {
    const int64_t bytes = row_bytes(x.type);
    copy_columns(stream.pool(), y.type.shape.rows(), bytes, x.as<std::byte>(), bytes, dst, stride);
    dst += bytes;
  }
}

bool supports_slice(const CallSignature& call) {
  return call.in.size() == 1 && call.in[0].dtype == call.out[0].dtype &&
         call.attrs->integer("begin") + call.out[0].shape.last() <= call.in[0].shape.last();
}

void slice(const KernelArgs& args, Stream& stream) {
  const TensorArg& x = args.in[0];
  const TensorArg& y = args.out[0];
  const int64_t skipped = args.attrs.integer("begin") * dtype_bytes(x.type.dtype);
  copy_columns(stream.pool(), y.type.shape.rows(), row_bytes(y.type), x.as<std::byte>() + skipped,
               row_bytes(x.type), y.as<std::byte>(), row_bytes(y.type));
}

// fn(offset, bytes) over the pieces of a tensor. A piece is some pages long: moving it takes far longer than
// handing it out.
template <typename Fn>
void for_byte_pieces(ThreadPool& pool, const TensorType& type, const Fn& fn) {
  constexpr int64_t kPieceBytes = int64_t{1} << 18;
  for_pieces(pool, type.bytes(), kPieceBytes,
             [&](int64_t begin, int64_t end, int) { fn(begin, static_cast<size_t>(end - begin)); });
}

bool supports_zeros(const CallSignature&) { return true; }  // zero is all bits zero in every type

void zeros(const KernelArgs& args, Stream& stream) {
  std::byte* dst = args.out[0].as<std::byte>();
  for_byte_pieces(stream.pool(), args.out[0].type,
                  [&](int64_t at, size_t bytes) { std::memset(dst + at, 0, bytes); });
}

bool supports_copy(const CallSignature& call) {
  return call.in[0].dtype == call.out[0].dtype && call.in[0].shape.elems() == call.out[0].shape.elems();
}

void copy(const KernelArgs& args, Stream& stream) {
  const std::byte* src = args.in[0].as<std::byte>();
  std::byte* dst = args.out[0].as<std::byte>();
  for_byte_pieces(stream.pool(), args.out[0].type,
                  [&](int64_t at, size_t bytes) { std::memcpy(dst + at, src + at, bytes); });
}

}  // namespace

void add_shape_kernels(KernelRegistry& registry) {
  registry.add({"cpu.concat", Op::Concat, supports_concat, nullptr, concat});
  registry.add({"cpu.slice", Op::Slice, supports_slice, nullptr, slice});
  registry.add({"cpu.zeros", Op::Zeros, supports_zeros, nullptr, zeros});
  registry.add({"cpu.copy", Op::Copy, supports_copy, nullptr, copy});
}

}  // namespace tandem::cpu
