// The matrix products of the op set: each is one product with an epilogue. Leading dims collapse to rows.
#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/kernels/cuda/device/queue_of.h"
#include "tandem/kernels/cuda/gemm/bias_grad.h"
#include "tandem/kernels/cuda/gemm/gemm.h"
#include "tandem/kernels/cuda/gemm/gemv.h"
#include "tandem/kernels/cuda/register.h"

namespace tandem::cuda {
namespace {

// What an op is as a product. The operands are inputs kOperands and the next; what stands before them is
// added to.
struct Matmul {
  static constexpr size_t kOperands = 0;
  static GemmEpilogue epilogue(size_t num_in) { return num_in > 2 ? GemmEpilogue::Bias : GemmEpilogue::None; }
  static GemmTensors tensors(const KernelArgs& args) {
    return {args.in[0].data, args.in[1].data, args.out[0].data,
            args.in.size() > 2 ? args.in[2].data : nullptr};
  }
};

struct MatmulGelu {
  static constexpr size_t kOperands = 0;
  static GemmEpilogue epilogue(size_t) { return GemmEpilogue::GeluBias; }
  static GemmTensors tensors(const KernelArgs& args) {
    return {args.in[0].data, args.in[1].data, args.out[0].data, args.in[2].data, args.out[1].data};
  }
};

struct MatmulGeluGrad {
  static constexpr size_t kOperands = 0;
  static GemmEpilogue epilogue(size_t) { return GemmEpilogue::GeluGrad; }
  static GemmTensors tensors(const KernelArgs& args) {
    return {args.in[0].data, args.in[1].data, args.out[0].data, nullptr, args.in[2].data};
  }
};

struct MatmulAcc {
  static constexpr size_t kOperands = 1;
  static GemmEpilogue epilogue(size_t) { return GemmEpilogue::None; }
  static GemmTensors tensors(const KernelArgs& args) {
    return {args.in[1].data, args.in[2].data, args.out[0].data};
  }
};

struct MatmulBiasAcc {
  static constexpr size_t kOperands = 2;
  static GemmEpilogue epilogue(size_t) { return GemmEpilogue::ColumnSumsOfA; }
  static GemmTensors tensors(const KernelArgs& args) {
    return {args.in[2].data, args.in[3].data, args.out[0].data, args.out[1].data};
  }
};

// Of 8-bit floats, both along k: a, b, scale_a, scale_b from input kFirst on.
template <size_t kFirst>
GemmTensors fp8_tensors(const KernelArgs& args, void* bias = nullptr) {
  const auto scale = [&](size_t i, std::string_view slot) {
    return args.in[kFirst + i].as<const float>() + 4 * args.attrs.integer(slot);
  };
  return {.a = args.in[kFirst].data,
          .b = args.in[kFirst + 1].data,
          .d = args.out[0].data,
          .bias = bias,
          .scale_a = scale(2, "slot_a"),
          .scale_b = scale(3, "slot_b")};
}

struct Fp8Matmul {
  static constexpr size_t kOperands = 0;
  static GemmEpilogue epilogue(size_t num_in) { return num_in > 4 ? GemmEpilogue::Bias : GemmEpilogue::None; }
  static GemmTensors tensors(const KernelArgs& args) {
    return fp8_tensors<kOperands>(args, args.in.size() > 4 ? args.in[4].data : nullptr);
  }
};

struct Fp8MatmulAcc {
  static constexpr size_t kOperands = 1;
  static GemmEpilogue epilogue(size_t) { return GemmEpilogue::None; }
  static GemmTensors tensors(const KernelArgs& args) { return fp8_tensors<kOperands>(args); }
};

template <typename Product>
Gemm gemm_of(const TensorType& a, const TensorType& b, DType out, size_t num_in, const Attrs& attrs) {
  Gemm gemm;
  gemm.trans_a = attrs.integer_or("trans_a", 0) != 0;
  gemm.trans_b = is_fp8(a.dtype) || attrs.integer_or("trans_b", 0) != 0;
  gemm.m = gemm.trans_a ? a.shape.last() : a.shape.rows();
  gemm.n = gemm.trans_b ? b.shape.rows() : b.shape.last();
  gemm.k = gemm.trans_a ? a.shape.rows() : a.shape.last();
  TANDEM_CHECK(gemm.k == (gemm.trans_b ? b.shape.last() : b.shape.rows()), "matmul of {} by {}",
               to_string(a.shape), to_string(b.shape));
  gemm.in = a.dtype;
  if (b.dtype != a.dtype) gemm.in_b = b.dtype;
  gemm.out = out;
  gemm.accumulate = Product::kOperands > 0 && attrs.integer_or("fresh", 0) == 0;
  gemm.epilogue = Product::epilogue(num_in);
  return gemm;
}
template <typename Product>
Gemm gemm_of(const CallSignature& call) {
  return gemm_of<Product>(call.in[Product::kOperands], call.in[Product::kOperands + 1], call.out[0].dtype,
                          call.in.size(), *call.attrs);
}
template <typename Product>
Gemm gemm_of(const KernelArgs& args) {
  return gemm_of<Product>(args.in[Product::kOperands].type, args.in[Product::kOperands + 1].type,
                          args.out[0].type.dtype, args.in.size(), args.attrs);
}

// Operands, and what is read beside them, are of one type, but for 8-bit floats; so are results, but that
// sums of columns are f32.
template <typename Product>
bool supports(const CallSignature& call) {
  const auto are_like_first = [](auto begin, auto end) {
    return std::all_of(begin, end, [&](const TensorType& type) { return type.dtype == begin->dtype; });
  };
  const auto operands = call.in.begin() + static_cast<std::ptrdiff_t>(Product::kOperands);
  const bool results = call.op == Op::MatmulBiasAcc ? call.out[1].dtype == DType::F32
                                                    : are_like_first(call.out.begin(), call.out.end());
  const bool alike = is_fp8(operands->dtype) || are_like_first(operands, call.in.end());
  return alike && results && gemm_supported(gemm_of<Product>(call));
}
template <typename Product>
size_t workspace(const CallSignature& call, int) {
  return gemm_workspace(gemm_of<Product>(call));
}
template <typename Product>
void run(const KernelArgs& args, Stream& stream) {
  gemm_run(gemm_of<Product>(args), Product::tensors(args), args.workspace, queue_of(stream));
}
template <typename Product>
void prepare(const KernelArgs& args, Stream& stream) {
  gemm_prepare(gemm_of<Product>(args), Product::tensors(args), args.workspace, queue_of(stream));
}

template <typename Product>
void add(KernelRegistry& registry, Op op) {
  registry.add({"cuda." + std::string(op_name(op)), op, supports<Product>, workspace<Product>, run<Product>,
                prepare<Product>});
}

}  // namespace

void add_matmul_kernels(KernelRegistry& registry) {
  add_gemv_kernel(registry);
  add<Matmul>(registry, Op::Matmul);
  add<MatmulGelu>(registry, Op::MatmulGelu);
  add<MatmulGeluGrad>(registry, Op::MatmulGeluGrad);
  add<MatmulAcc>(registry, Op::MatmulAcc);
  add<MatmulBiasAcc>(registry, Op::MatmulBiasAcc);
  add<Fp8Matmul>(registry, Op::Fp8Matmul);
  add<Fp8MatmulAcc>(registry, Op::Fp8MatmulAcc);
  add_bias_grad_kernels(registry);
}

}  // namespace tandem::cuda
