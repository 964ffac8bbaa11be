// Reference attention and rotary embedding on packed qkv rows: query heads, then key heads, then value heads.
#include <algorithm>
#include <limits>

#include "tandem/kernels/cpu/ref/ref_tensor.h"

namespace tandem::cpu::ref {
namespace {

struct Packed {
  int64_t batch, time, heads, kv_heads, head_dim;

  Packed(const Shape& qkv, const Attrs& attrs)
      : batch(qkv[0]),
        time(qkv[1]),
        heads(attrs.integer("heads")),
        kv_heads(attrs.integer("kv_heads")),
        head_dim(qkv.last() / slots()) {
    TANDEM_CHECK(head_dim * slots() == qkv.last() && heads % kv_heads == 0,
                 "packed qkv {} with {} heads and {} kv heads", to_string(qkv), heads, kv_heads);
  }
  int64_t slots() const { return heads + 2 * kv_heads; }
  int64_t at(int64_t b, int64_t t, int64_t slot) const {
    return ((b * time + t) * slots() + slot) * head_dim;
  }
  int64_t query(int64_t b, int64_t t, int64_t head) const { return at(b, t, head); }
  int64_t key(int64_t b, int64_t t, int64_t head) const {
    return at(b, t, heads + head / (heads / kv_heads));
  }
  int64_t value(int64_t b, int64_t t, int64_t head) const { return key(b, t, head) + kv_heads * head_dim; }
  int64_t out(int64_t b, int64_t t, int64_t head) const { return ((b * time + t) * heads + head) * head_dim; }
  int64_t lse(int64_t b, int64_t head, int64_t t) const { return (b * heads + head) * time + t; }
};

void rotate(const KernelArgs& args, double direction) {
  const TensorArg& qkv = args.out[0];
  const Packed packed(qkv.type.shape, args.attrs);
  const int64_t half = packed.head_dim / 2;
  const double theta = args.attrs.real("theta");
  for (int64_t row = 0; row < packed.batch * packed.time; ++row) {
    const int64_t t = row % packed.time;
    for (int64_t slot = 0; slot < packed.heads + packed.kv_heads; ++slot) {
      const int64_t base = packed.at(0, row, slot);
      for (int64_t i = 0; i < half; ++i) {
        const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(packed.head_dim);
        const double angle = direction * static_cast<double>(t) * std::pow(theta, exponent);
        const double a = get(qkv, base + i), b = get(qkv, base + half + i);
        set(qkv, base + i, a * std::cos(angle) - b * std::sin(angle));
        set(qkv, base + half + i, b * std::cos(angle) + a * std::sin(angle));
      }
    }
  }
}

void run_rope(const KernelArgs& args, Stream&) { rotate(args, 1); }
void run_rope_grad(const KernelArgs& args, Stream&) { rotate(args, -1); }

double dot(const TensorArg& x, int64_t x_base, const TensorArg& y, int64_t y_base, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += get(x, x_base + i) * get(y, y_base + i);
  return sum;
}

void run_attention(const KernelArgs& args, Stream&) {
  const TensorArg &qkv = args.in[0], &out = args.out[0], &lse = args.out[1];
  const Packed packed(qkv.type.shape, args.attrs);
  const bool causal = args.attrs.integer("causal") != 0;
  const double scale = 1 / std::sqrt(static_cast<double>(packed.head_dim));
  std::vector<double> scores(static_cast<size_t>(packed.time));
  for (int64_t b = 0; b < packed.batch; ++b) {
    for (int64_t head = 0; head < packed.heads; ++head) {
      for (int64_t t = 0; t < packed.time; ++t) {
        const int64_t keys = causal ? t + 1 : packed.time;
        double largest = -std::numeric_limits<double>::infinity(), sum = 0;
        for (int64_t s = 0; s < keys; ++s) {
          const double score =
              scale * dot(qkv, packed.query(b, t, head), qkv, packed.key(b, s, head), packed.head_dim);
          scores[static_cast<size_t>(s)] = score;
          largest = std::max(largest, score);
        }
        for (int64_t s = 0; s < keys; ++s) sum += std::exp(scores[static_cast<size_t>(s)] - largest);
        const double log_sum = largest + std::log(sum);
        for (int64_t i = 0; i < packed.head_dim; ++i) {
          double mixed = 0;
          for (int64_t s = 0; s < keys; ++s) {
            mixed +=
                std::exp(scores[static_cast<size_t>(s)] - log_sum) * get(qkv, packed.value(b, s, head) + i);
          }
          set(out, packed.out(b, t, head) + i, mixed);
        }
        set(lse, packed.lse(b, head, t), log_sum);
      }
    }
  }
}

// With p = exp(score - lse) and d = dout . out: dv += p dout, dscore = p (dout . v - d).
void run_attention_grad(const KernelArgs& args, Stream&) {
  const TensorArg &dout = args.in[0], &qkv = args.in[1], &out = args.in[2], &lse = args.in[3];
  const TensorArg& dqkv = args.out[0];
  const Packed packed(qkv.type.shape, args.attrs);
  const bool causal = args.attrs.integer("causal") != 0;
  const double scale = 1 / std::sqrt(static_cast<double>(packed.head_dim));
  std::vector<double> sums(static_cast<size_t>(dqkv.elems()));
  for (int64_t b = 0; b < packed.batch; ++b) {
    for (int64_t head = 0; head < packed.heads; ++head) {
      for (int64_t t = 0; t < packed.time; ++t) {
        const int64_t o = packed.out(b, t, head), q = packed.query(b, t, head);
        const double d = dot(dout, o, out, o, packed.head_dim);
        const int64_t keys = causal ? t + 1 : packed.time;
        for (int64_t s = 0; s < keys; ++s) {
          const int64_t k = packed.key(b, s, head), v = packed.value(b, s, head);
          const double p =
              std::exp(scale * dot(qkv, q, qkv, k, packed.head_dim) - get(lse, packed.lse(b, head, t)));
          const double dscore = scale * p * (dot(dout, o, qkv, v, packed.head_dim) - d);
          for (int64_t i = 0; i < packed.head_dim; ++i) {
            sums[static_cast<size_t>(q + i)] += dscore * get(qkv, k + i);
            sums[static_cast<size_t>(k + i)] += dscore * get(qkv, q + i);
            sums[static_cast<size_t>(v + i)] += p * get(dout, o + i);
          }
        }
      }
    }
  }
  for (int64_t i = 0; i < dqkv.elems(); ++i) set(dqkv, i, sums[static_cast<size_t>(i)]);
  if (args.attrs.integer_or("sums", 0) == 0) return;
  begin_accumulators(args, {1});
  const int64_t width = qkv.type.shape.last();
  for (int64_t column = 0; column < width; ++column) {
    double sum = 0;
    for (int64_t i = column; i < dqkv.elems(); i += width) sum += get(dqkv, i);
    accumulate(args.out[1], column, sum);
  }
}

}  // namespace

void add_attention(KernelRegistry& registry) {
  add(registry, Op::Rope, run_rope);
  add(registry, Op::RopeGrad, run_rope_grad);
  add(registry, Op::Attention, run_attention);
  add(registry, Op::AttentionGrad, run_attention_grad);
}

}  // namespace tandem::cpu::ref
