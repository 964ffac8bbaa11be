// Rotary positions, in place on packed qkv: element pair (i, i + dims / 2) of every query and key head is
// turned by its position times its frequency, and back by the gradient. One table of cosines and sines serves
// all batches and heads; it is made in double, since that product needs more bits than fp32 has.
#include <algorithm>
#include <cmath>

#include "tandem/base/error.h"
#include "tandem/base/rope_frequencies.h"
#include "tandem/kernels/cpu/attention/attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tandem/kernels/cpu/attention/rope.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "tandem/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {
namespace rope {

// One token: heads of `head_dim` features, of which 2 * half turn, follow one another in `row`.
template <typename S>
HWY_ATTR void rotate_heads(S* row, int64_t num_heads, int64_t head_dim, int64_t half, const float* cosines,
                           const float* sines) {
  const FloatTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t head = 0; head < num_heads; ++head, row += head_dim) {
    S* first = row;
    S* second = row + half;
    int64_t i = 0;
    for (; i + lanes <= half; i += lanes) {
      const auto a = load_float(d, first + i);
      const auto b = load_float(d, second + i);
      const auto c = hn::LoadU(d, cosines + i);
      const auto s = hn::LoadU(d, sines + i);
      store_float(d, hn::NegMulAdd(b, s, hn::Mul(a, c)), first + i);
      store_float(d, hn::MulAdd(a, s, hn::Mul(b, c)), second + i);
    }
    for (; i < half; ++i) {
      const float a = scalar_float(first[i]);
      const float b = scalar_float(second[i]);
      store_scalar(a * cosines[i] - b * sines[i], first + i);
      store_scalar(b * cosines[i] + a * sines[i], second + i);
    }
  }
}

}  // namespace rope

void rope_token(const TensorArg& qkv, int64_t offset, int64_t num_heads, int64_t head_dim, int64_t half,
                const float* cosines, const float* sines) {
  const auto rotate = [&]<typename S>(S* data) {
    rope::rotate_heads(data + offset, num_heads, head_dim, half, cosines, sines);
  };
  switch (qkv.type.dtype) {
    case DType::BF16: return rotate(qkv.as<BFloat16>());
    case DType::F16: return rotate(qkv.as<Half>());
    default: return rotate(qkv.as<float>());
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem {
HWY_EXPORT(rope_token);

namespace cpu::attention {
namespace {

bool supports(const CallSignature& call) {
  if (!fast_attention_type(call.in[0], *call.attrs)) return false;
  if (call.in.size() > 1 && call.in[1].dtype != DType::I32) return false;
  return attention_shape(call.in[0], *call.attrs).head_dim % 2 == 0;
}

// The table: rows of cosines, then of sines, [tokens, dims / 2] each.
size_t workspace(const CallSignature& call, int) {
  const AttentionShape shape = attention_shape(call.in[0], *call.attrs);
  return static_cast<size_t>(shape.tokens * shape.head_dim) * sizeof(float);
}

// Positions of one task. Only its first comes from cos and sin; the others turn that on by one position at a
// time, in double, where so few steps lose nothing that fp32 could show. Row 0 of the table is `first`.
constexpr int64_t kPositions = 16;

void fill_table(int64_t first, int64_t begin, int64_t end, const RopeFrequencies& turns, double direction,
                float* cosines, float* sines) {
  const auto half = static_cast<int64_t>(turns.values.size());
  for (int64_t i = 0; i < half; ++i) {
    const double frequency = direction * turns.values[static_cast<size_t>(i)];
    const double step_cos = std::cos(frequency);
    const double step_sin = std::sin(frequency);
    double c = std::cos(static_cast<double>(first + begin) * frequency);
    double s = std::sin(static_cast<double>(first + begin) * frequency);
    for (int64_t position = begin; position < end; ++position) {
      cosines[position * half + i] = static_cast<float>(turns.factor * c);
      sines[position * half + i] = static_cast<float>(turns.factor * s);
      const double next = c * step_cos - s * step_sin;
      s = s * step_cos + c * step_sin;
      c = next;
    }
  }
}

// Direction 1 turns, -1 turns back.
void rotate(const KernelArgs& args, Stream& stream, double direction) {
  const TensorArg& qkv = args.out[0];
  TANDEM_CHECK(args.in[0].data == qkv.data, "rope works in place");
  const AttentionShape shape = attention_shape(qkv.type, args.attrs);
  const int64_t dims = args.attrs.integer_or("dims", shape.head_dim), half = dims / 2;
  const RopeFrequencies turns =
      rope_frequencies(args.attrs.real("theta"), dims, args.attrs.text_or("scaling", "none"),
                       args.attrs.integer_or("context", shape.tokens));
  const bool own_positions = args.attrs.integer_or("positions", 0) != 0;
  const int64_t first = args.in.size() > 1 && !own_positions ? args.in[1].as<int32_t>()[0] : 0;
  TANDEM_CHECK(args.workspace.size() >= static_cast<size_t>(shape.tokens * shape.head_dim) * sizeof(float));
  float* cosines = reinterpret_cast<float*>(args.workspace.data());
  float* sines = cosines + shape.tokens * half;
  const auto token = HWY_DYNAMIC_DISPATCH(rope_token);
  const auto rotate_token = [&](int64_t row, int64_t position) {
    token(qkv, row * shape.qkv_stride(), shape.heads + shape.kv_heads, shape.head_dim, half,
          cosines + position * half, sines + position * half);
  };
  const int64_t num_tasks = (shape.tokens + kPositions - 1) / kPositions;
  stream.pool().parallel_for(num_tasks, [&](int64_t task, int) {
    const int64_t begin = task * kPositions;
    const int64_t end = std::min(shape.tokens, begin + kPositions);
    fill_table(first, begin, end, turns, direction, cosines, sines);
    for (int64_t batch = 0; batch < (own_positions ? 0 : shape.batch); ++batch) {
      for (int64_t t = begin; t < end; ++t) rotate_token(batch * shape.tokens + t, t);
    }
  });
  if (!own_positions) return;
  // A token may need any row of the table, so all of it comes first.
  const int32_t* positions = args.in[1].as<int32_t>();
  stream.pool().parallel_for(shape.batch * num_tasks, [&](int64_t task, int) {
    const int64_t first_row = task / num_tasks * shape.tokens, begin = task % num_tasks * kPositions;
    for (int64_t t = begin; t < std::min(shape.tokens, begin + kPositions); ++t) {
      const int64_t position = positions[first_row + t];
      TANDEM_CHECK(position >= 0 && position < shape.tokens, "position {} of a sequence of {}", position,
                   shape.tokens);
      rotate_token(first_row + t, position);
    }
  });
}

void run_rope(const KernelArgs& args, Stream& stream) { rotate(args, stream, 1.0); }
void run_rope_grad(const KernelArgs& args, Stream& stream) { rotate(args, stream, -1.0); }

}  // namespace

void add_rope_kernels(KernelRegistry& registry) {
  registry.add({"cpu.rope", Op::Rope, supports, workspace, run_rope});
  registry.add({"cpu.rope_grad", Op::RopeGrad, supports, workspace, run_rope_grad});
}

}  // namespace cpu::attention
}  // namespace tandem
#endif
