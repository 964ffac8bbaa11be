// Reference matrix products. A tensor of any rank is a matrix of rows() x last().
#include "tandem/kernels/cpu/ref/ref_tensor.h"

namespace tandem::cpu::ref {
namespace {

// op(a) op(b), read through the transposes.
struct Product {
  TensorArg a, b;
  bool trans_a, trans_b;
  int64_t m, n, k;

  Product(const TensorArg& a, const TensorArg& b, const Attrs& attrs)
      : a(a),
        b(b),
        trans_a(attrs.integer_or("trans_a", 0) != 0),
        trans_b(attrs.integer_or("trans_b", 0) != 0),
        m(trans_a ? a.type.shape.last() : a.type.shape.rows()),
        n(trans_b ? b.type.shape.rows() : b.type.shape.last()),
        k(trans_a ? a.type.shape.rows() : a.type.shape.last()) {
    TANDEM_CHECK(k == (trans_b ? b.type.shape.last() : b.type.shape.rows()), "matmul of {} by {}",
                 to_string(a.type.shape), to_string(b.type.shape));
  }

  double at(int64_t row, int64_t col) const {
    double sum = 0;
    for (int64_t p = 0; p < k; ++p) {
      sum += get(a, trans_a ? p * m + row : row * k + p) * get(b, trans_b ? col * k + p : p * n + col);
    }
    return sum;
  }
};

void run_matmul(const KernelArgs& args, Stream&) {
  const Product product(args.in[0], args.in[1], args.attrs);
  for (int64_t row = 0; row < product.m; ++row) {
    for (int64_t col = 0; col < product.n; ++col) {
      const double bias = args.in.size() > 2 ? get(args.in[2], col) : 0;
      set(args.out[0], row * product.n + col, product.at(row, col) + bias);
    }
  }
}

// The activation is taken of the stored (rounded) product, as an unfused gelu would.
void run_matmul_gelu(const KernelArgs& args, Stream&) {
  const Product product(args.in[0], args.in[1], args.attrs);
  const TensorArg &act = args.out[0], &pre = args.out[1];
  for (int64_t row = 0; row < product.m; ++row) {
    for (int64_t col = 0; col < product.n; ++col) {
      const int64_t i = row * product.n + col;
      set(pre, i, product.at(row, col) + get(args.in[2], col));
      set(act, i, gelu(get(pre, i)));
    }
  }
}

void run_matmul_acc(const KernelArgs& args, Stream&) {
  begin_accumulators(args, {0});
  const Product product(args.in[1], args.in[2], args.attrs);
  for (int64_t row = 0; row < product.m; ++row) {
    for (int64_t col = 0; col < product.n; ++col) {
      accumulate(args.out[0], row * product.n + col, product.at(row, col));
    }
  }
}

void add_column_sums(const TensorArg& acc, const TensorArg& dy) {
  const int64_t rows = dy.type.shape.rows(), cols = dy.type.shape.last();
  for (int64_t col = 0; col < cols; ++col) {
    double sum = 0;
    for (int64_t row = 0; row < rows; ++row) sum += get(dy, row * cols + col);
    accumulate(acc, col, sum);
  }
}

void run_bias_grad(const KernelArgs& args, Stream&) {
  begin_accumulators(args, {0});
  add_column_sums(args.out[0], args.in[1]);
}

void run_matmul_bias_acc(const KernelArgs& args, Stream&) {
  begin_accumulators(args, {0, 1});
  const Product product(args.in[2], args.in[3], args.attrs);
  for (int64_t row = 0; row < product.m; ++row) {
    for (int64_t col = 0; col < product.n; ++col) {
      accumulate(args.out[0], row * product.n + col, product.at(row, col));
    }
  }
  add_column_sums(args.out[1], args.in[2]);
}

// The product is not rounded before the slope is applied: it is never stored.
void run_matmul_gelu_grad(const KernelArgs& args, Stream&) {
  const Product product(args.in[0], args.in[1], args.attrs);
  for (int64_t row = 0; row < product.m; ++row) {
    for (int64_t col = 0; col < product.n; ++col) {
      const int64_t i = row * product.n + col;
      set(args.out[0], i, product.at(row, col) * gelu_slope(get(args.in[2], i)));
    }
  }
}

}  // namespace

void add_matmul(KernelRegistry& registry) {
  add(registry, Op::Matmul, run_matmul);
  add(registry, Op::MatmulGelu, run_matmul_gelu);
  add(registry, Op::MatmulAcc, run_matmul_acc);
  add(registry, Op::MatmulBiasAcc, run_matmul_bias_acc);
  add(registry, Op::MatmulGeluGrad, run_matmul_gelu_grad);
  add(registry, Op::BiasGrad, run_bias_grad);
}

}  // namespace tandem::cpu::ref
