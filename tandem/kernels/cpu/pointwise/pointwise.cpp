// Elementwise kernels. Each vector is read whole before its result is written, so the output may take over
// either input's bytes.
#include "tandem/kernels/cpu/pointwise/pointwise.h"

#include "tandem/kernels/cpu/pointwise/dropout.h"
#include "tandem/kernels/cpu/pointwise/gated.h"
#include "tandem/kernels/cpu/pointwise/pointwise_shape.h"
#include "tandem/kernels/cpu/register.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tandem/kernels/cpu/pointwise/pointwise.cpp"
#include "hwy/foreach_target.h"
#include "tandem/kernels/cpu/pointwise/exp-inl.h"
#include "tandem/kernels/cpu/pointwise/gelu-inl.h"
#include "tandem/kernels/cpu/pointwise/pointwise-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {
namespace {

template <typename Fn>
void map_unary(const KernelArgs& args, Stream& stream, const Fn& fn) {
  cpu::with_storage(args.in[0].type.dtype, [&]<typename S>(S) {
    const S* x = args.in[0].as<S>();
    S* y = args.out[0].as<S>();
    cpu::for_pieces(stream.pool(), args.out[0].elems(), cpu::kElemsPerTask,
                    [&](int64_t begin, int64_t end, int) {
                      const FloatTag d;
                      const S* src = x + begin;
                      S* dst = y + begin;
                      for_each_vector(static_cast<size_t>(end - begin), [&](size_t i, auto part) {
                        store_float(d, fn(d, load_float(d, src + i, part)), dst + i, part);
                      });
                    });
  });
}

template <typename Fn>
void map_binary(const KernelArgs& args, Stream& stream, const Fn& fn) {
  cpu::with_storage(args.in[0].type.dtype, [&]<typename S>(S) {
    const S* a = args.in[0].as<S>();
    const S* b = args.in[1].as<S>();
    S* y = args.out[0].as<S>();
    cpu::for_pieces(
        stream.pool(), args.out[0].elems(), cpu::kElemsPerTask, [&](int64_t begin, int64_t end, int) {
          const FloatTag d;
          const S* lhs = a + begin;
          const S* rhs = b + begin;
          S* dst = y + begin;
          for_each_vector(static_cast<size_t>(end - begin), [&](size_t i, auto part) {
            store_float(d, fn(d, load_float(d, lhs + i, part), load_float(d, rhs + i, part)), dst + i, part);
          });
        });
  });
}

void run_add(const KernelArgs& args, Stream& stream) {
  map_binary(args, stream, [](FloatTag, FloatVec a, FloatVec b) { return hn::Add(a, b); });
}

void run_scale(const KernelArgs& args, Stream& stream) {
  const float factor = static_cast<float>(args.attrs.real("factor"));
  map_unary(args, stream, [factor](FloatTag d, FloatVec x) { return hn::Mul(x, hn::Set(d, factor)); });
}

void run_gelu(const KernelArgs& args, Stream& stream) {
  map_unary(args, stream, [](FloatTag d, FloatVec x) { return gelu(d, x); });
}

void run_gelu_grad(const KernelArgs& args, Stream& stream) {
  map_binary(args, stream, [](FloatTag d, FloatVec dy, FloatVec x) { return hn::Mul(dy, gelu_slope(d, x)); });
}

void run_relu(const KernelArgs& args, Stream& stream) {
  map_unary(args, stream, [](FloatTag d, FloatVec x) {
    return hn::IfThenZeroElse(hn::Le(x, hn::Zero(d)), x);  // keeps a NaN
  });
}

void run_relu_grad(const KernelArgs& args, Stream& stream) {
  map_binary(args, stream, [](FloatTag d, FloatVec dy, FloatVec y) {
    return hn::IfThenElseZero(hn::Gt(y, hn::Zero(d)), dy);
  });
}

void run_softcap(const KernelArgs& args, Stream& stream) {
  const float cap = static_cast<float>(args.attrs.real("cap"));
  map_unary(args, stream, [cap](FloatTag d, FloatVec x) {
    const FloatVec limit = hn::Set(d, cap);
    return hn::Mul(limit, fast_tanh(d, hn::Div(x, limit)));
  });
}

void run_softcap_grad(const KernelArgs& args, Stream& stream) {
  const float cap = static_cast<float>(args.attrs.real("cap"));
  map_binary(args, stream, [cap](FloatTag d, FloatVec dy, FloatVec x) {
    const FloatVec t = fast_tanh(d, hn::Div(x, hn::Set(d, cap)));
    return hn::Mul(dy, hn::NegMulAdd(t, t, hn::Set(d, 1.0f)));
  });
}

void run_cast(const KernelArgs& args, Stream& stream) {
  cpu::with_storage(args.in[0].type.dtype, [&]<typename From>(From) {
    cpu::with_storage(args.out[0].type.dtype, [&]<typename To>(To) {
      const From* x = args.in[0].as<From>();
      To* y = args.out[0].as<To>();
      cpu::for_pieces(stream.pool(), args.out[0].elems(), cpu::kElemsPerTask,
                      [&](int64_t begin, int64_t end, int) {
                        const FloatTag d;
                        const From* src = x + begin;
                        To* dst = y + begin;
                        for_each_vector(static_cast<size_t>(end - begin), [&](size_t i, auto part) {
                          store_float(d, load_float(d, src + i, part), dst + i, part);
                        });
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
HWY_EXPORT(run_add);
HWY_EXPORT(run_scale);
HWY_EXPORT(run_gelu);
HWY_EXPORT(run_gelu_grad);
HWY_EXPORT(run_relu);
HWY_EXPORT(run_relu_grad);
HWY_EXPORT(run_softcap);
HWY_EXPORT(run_softcap_grad);
HWY_EXPORT(run_cast);

namespace cpu {
namespace {

bool supports_unary(const CallSignature& call) {
  return call.in.size() == 1 && call.out.size() == 1 && is_storage(call.in[0].dtype) &&
         call.in[0] == call.out[0];
}
bool supports_binary(const CallSignature& call) {
  return call.in.size() == 2 && call.out.size() == 1 && is_storage(call.in[0].dtype) &&
         call.in[0].dtype == call.in[1].dtype && call.in[0].dtype == call.out[0].dtype &&
         call.in[0].shape.elems() == call.out[0].shape.elems() &&
         call.in[1].shape.elems() == call.out[0].shape.elems();
}
bool supports_add(const CallSignature& call) {  // perhaps into one of the two
  CallSignature two = call;
  two.in.resize(std::min<size_t>(call.in.size(), 2));
  return supports_binary(two);
}
bool supports_cast(const CallSignature& call) {
  return call.in.size() == 1 && is_storage(call.in[0].dtype) && is_storage(call.out[0].dtype);
}

void add(const KernelArgs& args, Stream& stream) { HWY_DYNAMIC_DISPATCH(run_add)(args, stream); }
void scale(const KernelArgs& args, Stream& stream) { HWY_DYNAMIC_DISPATCH(run_scale)(args, stream); }
void gelu(const KernelArgs& args, Stream& stream) { HWY_DYNAMIC_DISPATCH(run_gelu)(args, stream); }
void gelu_grad(const KernelArgs& args, Stream& stream) { HWY_DYNAMIC_DISPATCH(run_gelu_grad)(args, stream); }
void relu(const KernelArgs& args, Stream& stream) { HWY_DYNAMIC_DISPATCH(run_relu)(args, stream); }
void relu_grad(const KernelArgs& args, Stream& stream) { HWY_DYNAMIC_DISPATCH(run_relu_grad)(args, stream); }
void softcap(const KernelArgs& args, Stream& stream) { HWY_DYNAMIC_DISPATCH(run_softcap)(args, stream); }
void softcap_grad(const KernelArgs& args, Stream& stream) {
  HWY_DYNAMIC_DISPATCH(run_softcap_grad)(args, stream);
}
void cast(const KernelArgs& args, Stream& stream) { HWY_DYNAMIC_DISPATCH(run_cast)(args, stream); }

}  // namespace

void scale_values(const TensorArg& x, double factor, const TensorArg& y, Stream& stream) {
  scale({{&x, 1}, {&y, 1}, {{"factor", factor}}, {}}, stream);
}
void cap_values(const TensorArg& x, double cap, const TensorArg& y, Stream& stream) {
  softcap({{&x, 1}, {&y, 1}, {{"cap", cap}}, {}}, stream);
}
void cap_values_grad(const TensorArg& dy, const TensorArg& x, double cap, const TensorArg& dx,
                     Stream& stream) {
  const TensorArg in[] = {dy, x};
  softcap_grad({in, {&dx, 1}, {{"cap", cap}}, {}}, stream);
}

void add_pointwise_kernels(KernelRegistry& registry) {
  add_dropout_kernels(registry);
  registry.add({"cpu.add", Op::Add, supports_add, nullptr, add});
  registry.add({"cpu.scale", Op::Scale, supports_unary, nullptr, scale});
  registry.add({"cpu.gelu", Op::Gelu, supports_unary, nullptr, gelu});
  registry.add({"cpu.gelu_grad", Op::GeluGrad, supports_binary, nullptr, gelu_grad});
  registry.add({"cpu.relu", Op::Relu, supports_unary, nullptr, relu});
  registry.add({"cpu.relu_grad", Op::ReluGrad, supports_binary, nullptr, relu_grad});
  registry.add({"cpu.softcap", Op::Softcap, supports_unary, nullptr, softcap});
  registry.add({"cpu.softcap_grad", Op::SoftcapGrad, supports_binary, nullptr, softcap_grad});
  registry.add({"cpu.cast", Op::Cast, supports_cast, nullptr, cast});
  add_gated_kernels(registry);
  add_shape_kernels(registry);
}

}  // namespace cpu
}  // namespace tandem
#endif
