// Matmul, MatmulGelu and MatmulAcc on the blocked matrix product. Leading dims collapse to rows, and a
// transposed operand is a view with exchanged strides.
#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/kernels/cpu/gemm/gemm.h"
#include "tandem/kernels/cpu/gemm/gemv.h"
#include "tandem/kernels/cpu/register.h"
#include "tandem/runtime/storage.h"

namespace tandem::cpu {
namespace {

struct Extents {
  int64_t m, n, k;
};

Extents extents(const TensorType& a, const TensorType& b, const Attrs& attrs) {
  const bool trans_a = attrs.integer_or("trans_a", 0) != 0, trans_b = attrs.integer_or("trans_b", 0) != 0;
  const int64_t m = trans_a ? a.shape.last() : a.shape.rows();
  const int64_t k = trans_a ? a.shape.rows() : a.shape.last();
  const int64_t n = trans_b ? b.shape.rows() : b.shape.last();
  const int64_t k_of_b = trans_b ? b.shape.last() : b.shape.rows();
  TANDEM_CHECK(k == k_of_b, "inner extents {} and {}", k, k_of_b);
  return {m, n, k};
}

MatrixView view(const TensorArg& tensor, bool transposed) {
  const int64_t row = tensor.type.shape.last();
  return {tensor.data, tensor.type.dtype, transposed ? 1 : row, transposed ? row : 1};
}

// The operands are inputs `first` and `first + 1`; the result is output 0.
GemmArgs product_args(const KernelArgs& args, size_t first) {
  const TensorArg &a = args.in[first], &b = args.in[first + 1], &c = args.out[0];
  const Extents size = extents(a.type, b.type, args.attrs);
  GemmArgs product;
  product.m = size.m;
  product.n = size.n;
  product.k = size.k;
  product.a = view(a, args.attrs.integer_or("trans_a", 0) != 0);
  product.b = view(b, args.attrs.integer_or("trans_b", 0) != 0);
  product.c = c.data;
  product.c_dtype = c.type.dtype;
  product.ldc = size.n;
  TANDEM_CHECK(c.elems() == size.m * size.n, "result of {} elements for {} x {}", c.elems(), size.m, size.n);
  return product;
}

size_t product_workspace(const CallSignature& call, size_t first, int num_threads) {
  const TensorType &a = call.in[first], &b = call.in[first + 1];
  const Extents size = extents(a, b, *call.attrs);
  return gemm_workspace({size.m, size.n, size.k, a.dtype, b.dtype, call.out[0].dtype}, num_threads);
}

// Operands, bias and results all of one storage type, but that a product may be f32.
bool supports_matmul(const CallSignature& call) {
  const auto same = [&](const TensorType& type) { return type.dtype == call.in[0].dtype; };
  const bool wide = call.op == Op::Matmul && call.out[0].dtype == DType::F32;
  return is_storage(call.in[0].dtype) && std::all_of(call.in.begin(), call.in.end(), same) &&
         (wide || std::all_of(call.out.begin(), call.out.end(), same));
}
bool supports_matmul_acc(const CallSignature& call) {
  const DType acc = call.in[0].dtype, storage = call.in[1].dtype;
  return is_storage(storage) && call.in[2].dtype == storage && (acc == DType::F32 || acc == storage);
}

// Only where the step says that rows are few: gemv adds in another order than gemm, whose bits do not depend
// on how many rows there are.
bool supports_gemv(const CallSignature& call) {
  const Attrs& attrs = *call.attrs;
  return attrs.integer_or("few", 0) != 0 && attrs.integer("trans_a") == 0 && attrs.integer("trans_b") != 0 &&
         call.in[0].shape.rows() <= kGemvRows && supports_matmul(call);
}

size_t matmul_workspace(const CallSignature& call, int num_threads) {
  return product_workspace(call, 0, num_threads);
}
size_t matmul_acc_workspace(const CallSignature& call, int num_threads) {
  return product_workspace(call, 1, num_threads);
}

size_t few_rows_workspace(const CallSignature& call, int) {
  const TensorType &a = call.in[0], &b = call.in[1];
  const Extents size = extents(a, b, *call.attrs);
  return gemv_workspace({size.m, size.n, size.k, a.dtype, b.dtype, call.out[0].dtype});
}

// With its bias, and with its GELU where the op has one.
GemmArgs finished_product(const KernelArgs& args) {
  GemmArgs product = product_args(args, 0);
  if (args.in.size() > 2) product.bias = args.in[2].data;
  if (args.out.size() > 1) product.pre = args.out[1].data;
  return product;
}

void run_matmul(const KernelArgs& args, Stream& stream) {
  gemm(finished_product(args), args.workspace, stream.pool());
}

void run_gemv(const KernelArgs& args, Stream& stream) {
  gemv(finished_product(args), args.workspace, stream.pool());
}

void run_matmul_acc(const KernelArgs& args, Stream& stream) {
  GemmArgs product = product_args(args, 1);
  product.accumulate = true;
  gemm(product, args.workspace, stream.pool());
}

}  // namespace

void add_matmul_kernels(KernelRegistry& registry) {
  registry.add({"cpu.gemv", Op::Matmul, supports_gemv, few_rows_workspace, run_gemv});
  registry.add({"cpu.gemv_gelu", Op::MatmulGelu, supports_gemv, few_rows_workspace, run_gemv});
  registry.add({"cpu.matmul", Op::Matmul, supports_matmul, matmul_workspace, run_matmul});
  registry.add({"cpu.matmul_gelu", Op::MatmulGelu, supports_matmul, matmul_workspace, run_matmul});
  registry.add({"cpu.matmul_acc", Op::MatmulAcc, supports_matmul_acc, matmul_acc_workspace, run_matmul_acc});
}

}  // namespace tandem::cpu
