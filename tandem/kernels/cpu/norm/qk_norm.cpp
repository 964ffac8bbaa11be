// Norms of queries and keys in packed qkv, of each head or of all heads of a kind together, and their
// gradient. A token's row is a few groups that are normalised one by one, as rms_norm does its rows, and the
// values behind them.
#include <cmath>
#include <cstring>

#include "tandem/kernels/cpu/norm/norm_kernels.h"
#include "tandem/kernels/cpu/norm/qk_shape.h"
#include "tandem/kernels/cpu/pointwise/bias_grad.h"
#include "tandem/kernels/cpu/pointwise/pointwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tandem/kernels/cpu/norm/qk_norm.cpp"
#include "hwy/foreach_target.h"
#include "tandem/kernels/cpu/norm/norm_kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {
namespace {

// gamma_q and gamma_k in fp32, one behind the other.
template <typename S>
void gains(const TensorArg& q, const TensorArg& k, const cpu::QkShape& shape, bool plus_one, float* dst) {
  const float* first = params_as_float(q.as<S>(), shape.q_width, dst, plus_one);
  const float* second = params_as_float(k.as<S>(), shape.k_width, dst + shape.q_width, plus_one);
  if (first != dst) std::copy_n(first, shape.q_width, dst);
  if (second != dst + shape.q_width) std::copy_n(second, shape.k_width, dst + shape.q_width);
}

template <typename S>
HWY_INLINE float norm_group(const S* x, int64_t width, const float* gain, float eps, S* y) {
  const FloatTag d;
  const auto n = static_cast<size_t>(width);
  const float squares = sum_of_vectors(n, [&](size_t i, auto part) {
    const auto v = load_float(d, x + i, part);
    return hn::Mul(v, v);
  });
  const float rstd = 1.0f / std::sqrt(squares / static_cast<float>(width) + eps);
  const auto scale = hn::Set(d, rstd);
  for_each_vector(n, [&](size_t i, auto part) {
    const auto v = hn::Mul(hn::Mul(load_float(d, x + i, part), scale), load_float(d, gain + i, part));
    store_float(d, v, y + i, part);
  });
  return rstd;
}

// qkv, gamma_q, gamma_k -> y, rstd. y may be qkv.
void run_qk_norm(const KernelArgs& args, Stream& stream) {
  const cpu::QkShape shape = cpu::qk_shape(args.in[0].type, args.attrs);
  const float eps = static_cast<float>(args.attrs.real("eps"));
  auto* gain = reinterpret_cast<float*>(args.workspace.data());
  const int64_t groups = shape.q_groups + shape.k_groups;
  cpu::with_storage(args.in[0].type.dtype, [&]<typename S>(S) {
    gains<S>(args.in[1], args.in[2], shape, cpu::adds_one(args.attrs), gain);
    cpu::for_row_groups(stream.pool(), shape.rows, shape.stride, [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; ++row) {
        const S* x = args.in[0].as<S>() + row * shape.stride;
        S* y = args.out[0].as<S>() + row * shape.stride;
        float* rstd = args.out[1].as<float>() + row * groups;
        int64_t at = 0;
        for (int64_t g = 0; g < groups; ++g) {
          const bool query = g < shape.q_groups;
          const int64_t width = query ? shape.q_width : shape.k_width;
          rstd[g] = norm_group(x + at, width, query ? gain : gain + shape.q_width, eps, y + at);
          at += width;
        }
        if (y != x) std::memcpy(y + at, x + at, static_cast<size_t>(shape.stride - at) * sizeof(S));
      }
    });
  });
}

// With g = dy gain: dx = rstd (g - xhat mean(g xhat)). dx may be dy.
template <typename S>
HWY_INLINE void norm_group_grad(const S* dy, const S* x, int64_t width, const float* gain, float rstd,
                                float* sums, S* dx) {
  const FloatTag d;
  const auto n = static_cast<size_t>(width);
  const float sum = sum_of_vectors(n, [&](size_t i, auto part) {
    const auto g = hn::Mul(load_float(d, dy + i, part), load_float(d, gain + i, part));
    return hn::Mul(g, load_float(d, x + i, part));
  });
  const auto mean = hn::Set(d, sum * rstd / static_cast<float>(width)), scale = hn::Set(d, rstd);
  for_each_vector(n, [&](size_t i, auto part) {
    const auto grad = load_float(d, dy + i, part);
    const auto xhat = hn::Mul(load_float(d, x + i, part), scale);
    store_float(d, hn::MulAdd(grad, xhat, load_float(d, sums + i, part)), sums + i, part);
    const auto g = hn::Mul(grad, load_float(d, gain + i, part));
    store_float(d, hn::Mul(hn::NegMulAdd(xhat, mean, g), scale), dx + i, part);
  });
}

// dy, qkv, gamma_q, gamma_k, rstd, acc_dq, acc_dk -> dqkv, acc_dq!, acc_dk!
void run_qk_norm_grad(const KernelArgs& args, Stream& stream) {
  const cpu::QkShape shape = cpu::qk_shape(args.in[1].type, args.attrs);
  const cpu::RowChunks chunks(shape.rows);
  auto* gain = reinterpret_cast<float*>(args.workspace.data());
  float* partials = gain + shape.params();  // [chunk][dq, dk]
  const int64_t groups = shape.q_groups + shape.k_groups;
  cpu::with_storage(args.in[0].type.dtype, [&]<typename S>(S) {
    gains<S>(args.in[2], args.in[3], shape, cpu::adds_one(args.attrs), gain);
    stream.pool().parallel_for(chunks.count, [&](int64_t chunk, int) {
      float* sums = partials + chunk * shape.params();
      std::fill_n(sums, shape.params(), 0.0f);
      for (int64_t row = chunks.begin(chunk); row < chunks.end(chunk); ++row) {
        const S* dy = args.in[0].as<S>() + row * shape.stride;
        const S* x = args.in[1].as<S>() + row * shape.stride;
        const float* rstd = args.in[4].as<float>() + row * groups;
        S* dx = args.out[0].as<S>() + row * shape.stride;
        int64_t at = 0;
        for (int64_t g = 0; g < groups; ++g) {
          const bool query = g < shape.q_groups;
          const int64_t width = query ? shape.q_width : shape.k_width, param = query ? 0 : shape.q_width;
          norm_group_grad(dy + at, x + at, width, gain + param, rstd[g], sums + param, dx + at);
          at += width;
        }
        if (dx != dy) std::memcpy(dx + at, dy + at, static_cast<size_t>(shape.stride - at) * sizeof(S));
      }
    });
  });
  cpu::add_partials(partials, chunks.count, shape.params(), args.in[5], args.out[1], stream);
  cpu::add_partials(partials + shape.q_width, chunks.count, shape.params(), args.in[6], args.out[2], stream);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem {
HWY_EXPORT(run_qk_norm);
HWY_EXPORT(run_qk_norm_grad);

namespace cpu {
namespace {

bool supports_qk_norm(const CallSignature& call) {
  const DType storage = call.in[0].dtype;
  return is_storage(storage) && call.in[1].dtype == storage && call.in[2].dtype == storage &&
         call.out[0].dtype == storage && call.out[1].dtype == DType::F32;
}
bool supports_qk_norm_grad(const CallSignature& call) {
  const DType storage = call.in[0].dtype;
  const bool rows = call.in[1].dtype == storage && call.in[2].dtype == storage && call.in[3].dtype == storage;
  return is_storage(storage) && rows && call.in[4].dtype == DType::F32 && is_storage(call.in[5].dtype) &&
         is_storage(call.in[6].dtype) && call.attrs->integer_or("fresh", 0) == 0;
}

size_t qk_norm_workspace(const CallSignature& call, int) {
  return static_cast<size_t>(qk_shape(call.in[0], *call.attrs).params()) * sizeof(float);
}
size_t qk_norm_grad_workspace(const CallSignature& call, int) {
  const QkShape shape = qk_shape(call.in[1], *call.attrs);
  return static_cast<size_t>((1 + RowChunks(shape.rows).count) * shape.params()) * sizeof(float);
}

void qk_norm(const KernelArgs& args, Stream& stream) { HWY_DYNAMIC_DISPATCH(run_qk_norm)(args, stream); }
void qk_norm_grad(const KernelArgs& args, Stream& stream) {
  HWY_DYNAMIC_DISPATCH(run_qk_norm_grad)(args, stream);
}

}  // namespace

void add_qk_norm_kernels(KernelRegistry& registry) {
  registry.add({"cpu.qk_norm", Op::QkNorm, supports_qk_norm, qk_norm_workspace, qk_norm});
  registry.add(
      {"cpu.qk_norm_grad", Op::QkNormGrad, supports_qk_norm_grad, qk_norm_grad_workspace, qk_norm_grad});
}

}  // namespace cpu
}  // namespace tandem
#endif
