// The convolution ops. One of 1x1 that moves by a pixel is a product. Others of 16 bits go through cuDNN;
// where it has no engine for them, or a bias is to be added before y is rounded, and in f32, of which its
// matrix units keep 10 bits, they are products of patches. Preparing is running once: it finds the engine or
// times the products, neither of which can be done while a CUDA graph is captured.
#include <algorithm>

#include "tandem/kernels/cuda/device/queue_of.h"
#include "tandem/kernels/cuda/image/conv_engine.h"
#include "tandem/kernels/cuda/image/conv_product.h"
#include "tandem/kernels/cuda/image/image_kernels.h"
#include "tandem/runtime/storage.h"

namespace tandem::cuda {
namespace {

// What an op is: where its shapes and tensors are.
template <Op kOp>
struct Conv;

template <>
struct Conv<Op::Conv2d> {
  static constexpr ConvPass kPass = ConvPass::Forward;
  static ConvShape shape(const auto& in, const auto& out, const Attrs& attrs, const auto& type) {
    return conv_shape(type(in[0]), type(in[1]), type(out[0]), attrs);
  }
  static ConvForward tensors(const KernelArgs& args) {
    return {.x = args.in[0].data,
            .w = args.in[1].data,
            .bias = args.in.size() > 2 ? args.in[2].data : nullptr,
            .y = args.out[0].data};
  }
};

template <>
struct Conv<Op::Conv2dGradInput> {
  static constexpr ConvPass kPass = ConvPass::GradInput;
  static ConvShape shape(const auto& in, const auto& out, const Attrs& attrs, const auto& type) {
    return conv_shape(type(out[0]), type(in[1]), type(in[0]), attrs);
  }
  static ConvGradInput tensors(const KernelArgs& args) {
    return {.dy = args.in[0].data, .w = args.in[1].data, .dx = args.out[0].data};
  }
};

template <>
struct Conv<Op::Conv2dGradWeight> {
  static constexpr ConvPass kPass = ConvPass::GradWeight;
  static ConvShape shape(const auto& in, const auto& out, const Attrs& attrs, const auto& type) {
    return conv_shape(type(in[1]), type(out[0]), type(in[2]), attrs);
  }
  static ConvGradWeight tensors(const KernelArgs& args) {
    return {.x = args.in[1].data,
            .dy = args.in[2].data,
            .acc = args.out[0].as<float>(),
            .fresh = args.attrs.integer_or("fresh", 0) != 0};
  }
};

template <Op kOp>
ConvShape shape_of(const CallSignature& call) {
  return Conv<kOp>::shape(call.in, call.out, *call.attrs,
                          [](const TensorType& type) -> const TensorType& { return type; });
}
template <Op kOp>
ConvShape shape_of(const KernelArgs& args) {
  return Conv<kOp>::shape(args.in, args.out, args.attrs,
                          [](const TensorArg& arg) -> const TensorType& { return arg.type; });
}

template <Op kOp>
bool supports(const CallSignature& call) {
  std::vector<TensorType> tensors = call.in;
  tensors.push_back(call.out[0]);
  if constexpr (kOp == Op::Conv2dGradWeight) {
    if (call.out[0].dtype != DType::F32) return false;
    tensors = {call.in[1], call.in[2]};
  }
  const DType storage = tensors[0].dtype;
  return is_storage(storage) && std::all_of(tensors.begin(), tensors.end(),
                                            [&](const TensorType& type) { return type.dtype == storage; });
}
template <Op kOp>
bool supports_engine(const CallSignature& call) {
  const bool has_bias = kOp == Op::Conv2d && call.in.size() > 2;
  if (has_bias || !supports<kOp>(call)) return false;
  const ConvShape shape = shape_of<kOp>(call);
  return is_half(shape.type) && !shape.is_product();
}

size_t product_workspace(const ConvShape& shape, ConvPass pass) {
  return pass == ConvPass::GradInput ? conv_product_grad_workspace(shape) : conv_product_workspace(shape);
}
template <Op kOp>
size_t workspace(const CallSignature& call, int) {
  return product_workspace(shape_of<kOp>(call), Conv<kOp>::kPass);
}
template <Op kOp>
size_t engine_workspace(const CallSignature& call, int) {
  const ConvShape shape = shape_of<kOp>(call);
  return std::max(conv_engine_workspace(shape, Conv<kOp>::kPass), product_workspace(shape, Conv<kOp>::kPass));
}

template <Op kOp>
void multiply_with(Multiply multiply, const KernelArgs& args, Stream& stream) {
  conv_product(shape_of<kOp>(args), Conv<kOp>::tensors(args), multiply, args.workspace, queue_of(stream));
}
template <Op kOp>
void run(const KernelArgs& args, Stream& stream) {
  multiply_with<kOp>(gemm_run, args, stream);
}
template <Op kOp>
void prepare(const KernelArgs& args, Stream& stream) {
  multiply_with<kOp>(gemm_prepare, args, stream);
}

template <Op kOp>
void run_or(Multiply multiply, const KernelArgs& args, Stream& stream) {
  if (!run_conv_engine(shape_of<kOp>(args), Conv<kOp>::tensors(args), args.workspace, queue_of(stream)))
    multiply_with<kOp>(multiply, args, stream);
}
template <Op kOp>
void run_engine(const KernelArgs& args, Stream& stream) {
  run_or<kOp>(gemm_run, args, stream);
}
template <Op kOp>
void prepare_engine(const KernelArgs& args, Stream& stream) {
  run_or<kOp>(gemm_prepare, args, stream);
}

template <Op kOp>
void add(KernelRegistry& registry) {
  const std::string name(op_name(kOp));
  registry.add({"cudnn." + name, kOp, supports_engine<kOp>, engine_workspace<kOp>, run_engine<kOp>,
                prepare_engine<kOp>});
  registry.add({"cuda." + name, kOp, supports<kOp>, workspace<kOp>, run<kOp>, prepare<kOp>});
}

}  // namespace

void add_conv_kernels(KernelRegistry& registry) {
  add<Op::Conv2d>(registry);
  add<Op::Conv2dGradInput>(registry);
  add<Op::Conv2dGradWeight>(registry);
}

}  // namespace tandem::cuda
