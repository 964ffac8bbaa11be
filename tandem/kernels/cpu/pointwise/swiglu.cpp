#include "tandem/kernels/cpu/pointwise/swiglu.h"

#include "tandem/kernels/cpu/pointwise/pointwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tandem/kernels/cpu/pointwise/swiglu.cpp"
#include "hwy/foreach_target.h"
#include "tandem/kernels/cpu/pointwise/exp-inl.h"
#include "tandem/kernels/cpu/pointwise/pointwise-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {
namespace {

HWY_INLINE FloatVec sigmoid(FloatTag d, FloatVec x) {
  const auto one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, fast_exp(d, hn::Neg(x))));
}

void run_swiglu(const KernelArgs& args, Stream& stream) {
  const int64_t width = args.out[0].type.shape.last();
  cpu::with_storage(args.in[0].type.dtype, [&]<typename S>(S) {
    const S* gate_up = args.in[0].as<S>();
    S* y = args.out[0].as<S>();
    cpu::for_row_groups(stream.pool(), args.out[0].type.shape.rows(), width,
                        [&](int64_t begin, int64_t end, int) {
                          const FloatTag d;
                          for (int64_t row = begin; row < end; ++row) {
                            const S* gate = gate_up + row * 2 * width;
                            const S* up = gate + width;
                            S* dst = y + row * width;
                            for_each_vector(static_cast<size_t>(width), [&](size_t i, auto part) {
                              const auto g = load_float(d, gate + i, part);
                              const auto silu = hn::Mul(g, sigmoid(d, g));
                              store_float(d, hn::Mul(silu, load_float(d, up + i, part)), dst + i, part);
                            });
                          }
                        });
  });
}

// With s = sigmoid(g): d silu / dg = s + g s (1 - s). dgate_up may be gate_up, and y, where it is given
// again, dy.
void run_swiglu_grad(const KernelArgs& args, Stream& stream) {
  const int64_t width = args.in[0].type.shape.last();
  cpu::with_storage(args.in[0].type.dtype, [&]<typename S>(S) {
    const S* dy = args.in[0].as<S>();
    const S* gate_up = args.in[1].as<S>();
    S* dgate_up = args.out[0].as<S>();
    S* y = args.out.size() > 1 ? args.out[1].as<S>() : nullptr;
    cpu::for_row_groups(stream.pool(), args.in[0].type.shape.rows(), width,
                        [&](int64_t begin, int64_t end, int) {
                          const FloatTag d;
                          for (int64_t row = begin; row < end; ++row) {
                            const S* src = dy + row * width;
                            const S* gate = gate_up + row * 2 * width;
                            const S* up = gate + width;
                            S* dgate = dgate_up + row * 2 * width;
                            S* dup = dgate + width;
                            for_each_vector(static_cast<size_t>(width), [&](size_t i, auto part) {
                              const auto grad = load_float(d, src + i, part);
                              const auto g = load_float(d, gate + i, part);
                              const auto u = load_float(d, up + i, part);
                              const auto s = sigmoid(d, g);
                              const auto silu = hn::Mul(g, s);
                              const auto slope = hn::MulAdd(silu, hn::Sub(hn::Set(d, 1.0f), s), s);
                              store_float(d, hn::Mul(hn::Mul(grad, u), slope), dgate + i, part);
                              store_float(d, hn::Mul(grad, silu), dup + i, part);
                              if (y != nullptr) store_float(d, hn::Mul(silu, u), y + row * width + i, part);
                            });
                          }
                        });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem {
HWY_EXPORT(run_swiglu);
HWY_EXPORT(run_swiglu_grad);

namespace cpu {
namespace {

bool one_storage_type(const CallSignature& call, size_t num_inputs) {
  if (call.in.size() != num_inputs || !is_storage(call.out[0].dtype)) return false;
  return std::all_of(call.in.begin(), call.in.end(),
                     [&](const TensorType& type) { return type.dtype == call.out[0].dtype; });
}
bool supports_swiglu(const CallSignature& call) {
  return one_storage_type(call, 1) && call.in[0].shape.last() == 2 * call.out[0].shape.last();
}
bool supports_swiglu_grad(const CallSignature& call) {
  return one_storage_type(call, 2) && call.in[1].shape.last() == 2 * call.in[0].shape.last();
}

void swiglu(const KernelArgs& args, Stream& stream) { HWY_DYNAMIC_DISPATCH(run_swiglu)(args, stream); }
void swiglu_grad(const KernelArgs& args, Stream& stream) {
  HWY_DYNAMIC_DISPATCH(run_swiglu_grad)(args, stream);
}

}  // namespace

void add_swiglu_kernels(KernelRegistry& registry) {
  registry.add({"cpu.swiglu", Op::Swiglu, supports_swiglu, nullptr, swiglu});
  registry.add({"cpu.swiglu_grad", Op::SwigluGrad, supports_swiglu_grad, nullptr, swiglu_grad});
}

}  // namespace cpu
}  // namespace tandem
#endif
