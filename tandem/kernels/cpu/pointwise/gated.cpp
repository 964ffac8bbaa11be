#include "tandem/kernels/cpu/pointwise/gated.h"

#include "tandem/kernels/cpu/pointwise/pointwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tandem/kernels/cpu/pointwise/gated.cpp"
#include "hwy/foreach_target.h"
#include "tandem/kernels/cpu/pointwise/gelu-inl.h"
#include "tandem/kernels/cpu/pointwise/pointwise-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {
namespace {

// A gate's value and slope together: they share an exponential. Built from the words of gelu-inl.h, so that
// a gate has the bits of the single op.
struct GateParts {
  FloatVec value, slope;
};

struct Silu {
  static HWY_INLINE FloatVec value(FloatTag d, FloatVec g) { return hn::Mul(g, sigmoid(d, g)); }
  // With s = sigmoid(g): d silu / dg = s + g s (1 - s).
  static HWY_INLINE GateParts parts(FloatTag d, FloatVec g) {
    const auto s = sigmoid(d, g);
    const auto silu = hn::Mul(g, s);
    return {silu, hn::MulAdd(silu, hn::Sub(hn::Set(d, 1.0f), s), s)};
  }
};

struct TanhGelu {
  static HWY_INLINE FloatVec value(FloatTag d, FloatVec g) { return gelu(d, g); }
  static HWY_INLINE GateParts parts(FloatTag d, FloatVec g) { return {gelu(d, g), gelu_slope(d, g)}; }
};

template <typename Gate>
void gated(const KernelArgs& args, Stream& stream) {
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
                              const auto value = Gate::value(d, load_float(d, gate + i, part));
                              store_float(d, hn::Mul(value, load_float(d, up + i, part)), dst + i, part);
                            });
                          }
                        });
  });
}

// dgate_up may be gate_up, and y, where it is given again, dy.
template <typename Gate>
void gated_grad(const KernelArgs& args, Stream& stream) {
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
                              const auto u = load_float(d, up + i, part);
                              const GateParts g = Gate::parts(d, load_float(d, gate + i, part));
                              store_float(d, hn::Mul(hn::Mul(grad, u), g.slope), dgate + i, part);
                              store_float(d, hn::Mul(grad, g.value), dup + i, part);
                              if (y != nullptr)
                                store_float(d, hn::Mul(g.value, u), y + row * width + i, part);
                            });
                          }
                        });
  });
}

void run_swiglu(const KernelArgs& args, Stream& stream) { gated<Silu>(args, stream); }
void run_swiglu_grad(const KernelArgs& args, Stream& stream) { gated_grad<Silu>(args, stream); }
void run_geglu(const KernelArgs& args, Stream& stream) { gated<TanhGelu>(args, stream); }
void run_geglu_grad(const KernelArgs& args, Stream& stream) { gated_grad<TanhGelu>(args, stream); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem {
HWY_EXPORT(run_swiglu);
HWY_EXPORT(run_swiglu_grad);
HWY_EXPORT(run_geglu);
HWY_EXPORT(run_geglu_grad);

namespace cpu {
namespace {

bool one_storage_type(const CallSignature& call, size_t num_inputs) {
  if (call.in.size() != num_inputs || !is_storage(call.out[0].dtype)) return false;
  return std::all_of(call.in.begin(), call.in.end(),
                     [&](const TensorType& type) { return type.dtype == call.out[0].dtype; });
}
bool supports_gated(const CallSignature& call) {
  return one_storage_type(call, 1) && call.in[0].shape.last() == 2 * call.out[0].shape.last();
}
bool supports_gated_grad(const CallSignature& call) {
  return one_storage_type(call, 2) && call.in[1].shape.last() == 2 * call.in[0].shape.last();
}

void swiglu(const KernelArgs& args, Stream& stream) { HWY_DYNAMIC_DISPATCH(run_swiglu)(args, stream); }
void swiglu_grad(const KernelArgs& args, Stream& stream) {
  HWY_DYNAMIC_DISPATCH(run_swiglu_grad)(args, stream);
}
void geglu(const KernelArgs& args, Stream& stream) { HWY_DYNAMIC_DISPATCH(run_geglu)(args, stream); }
void geglu_grad(const KernelArgs& args, Stream& stream) {
  HWY_DYNAMIC_DISPATCH(run_geglu_grad)(args, stream);
}

}  // namespace

void add_gated_kernels(KernelRegistry& registry) {
  registry.add({"cpu.swiglu", Op::Swiglu, supports_gated, nullptr, swiglu});
  registry.add({"cpu.swiglu_grad", Op::SwigluGrad, supports_gated_grad, nullptr, swiglu_grad});
  registry.add({"cpu.geglu", Op::Geglu, supports_gated, nullptr, geglu});
  registry.add({"cpu.geglu_grad", Op::GegluGrad, supports_gated_grad, nullptr, geglu_grad});
}

}  // namespace cpu
}  // namespace tandem
#endif
