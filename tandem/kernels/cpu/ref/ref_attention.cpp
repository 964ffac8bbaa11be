// Reference attention and rotary embedding on packed qkv rows: query heads, then key heads, then value heads.
#include <algorithm>
#include <limits>

#include "tandem/base/rope_frequencies.h"
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
  const int64_t dims = args.attrs.integer_or("dims", packed.head_dim), half = dims / 2;
  const RopeFrequencies turns =
      rope_frequencies(args.attrs.real("theta"), dims, args.attrs.text_or("scaling", "none"),
                       args.attrs.integer_or("context", packed.time));
  const bool by_token = args.attrs.integer_or("positions", 0) != 0;
  const int64_t first = args.in.size() > 1 && !by_token ? index(args.in[1], 0) : 0;
  for (int64_t row = 0; row < packed.batch * packed.time; ++row) {
    const int64_t t = by_token ? index(args.in[1], row) : first + row % packed.time;
    for (int64_t slot = 0; slot < packed.heads + packed.kv_heads; ++slot) {
      const int64_t base = packed.at(0, row, slot);
      for (int64_t i = 0; i < half; ++i) {
        const double angle = direction * static_cast<double>(t) * turns.values[static_cast<size_t>(i)];
        const double c = turns.factor * std::cos(angle), s = turns.factor * std::sin(angle);
        const double a = get(qkv, base + i), b = get(qkv, base + half + i);
        set(qkv, base + i, a * c - b * s);
        set(qkv, base + half + i, b * c + a * s);
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

// Who sees whom, and the scores of what is seen.
struct Scores {
  const Packed& packed;
  bool causal;
  int64_t window;
  double scale, cap;
  const TensorArg* segments = nullptr;

  Scores(const Packed& of, const KernelArgs& args, size_t segments_at)
      : packed(of),
        causal(args.attrs.integer("causal") != 0),
        window(args.attrs.integer_or("window", of.time)),
        scale(args.attrs.real_or("scale", 1 / std::sqrt(static_cast<double>(of.head_dim)))),
        cap(args.attrs.real_or("softcap", 0)) {
    if (args.attrs.integer_or("segments", 0) != 0) segments = &args.in[segments_at];
  }
  bool sees(int64_t b, int64_t query, int64_t key) const {
    if (causal && (key > query || key <= query - window)) return false;
    return segments == nullptr ||
           index(*segments, b * packed.time + query) == index(*segments, b * packed.time + key);
  }
  double score(double product) const {
    return cap == 0 ? scale * product : cap * std::tanh(scale * product / cap);
  }
  double slope(double score) const {  // of a score by the product
    return cap == 0 ? scale : scale * (1 - score * score / (cap * cap));
  }
};

void run_attention(const KernelArgs& args, Stream&) {
  const TensorArg &qkv = args.in[0], &out = args.out[0], &lse = args.out[1];
  const Packed packed(qkv.type.shape, args.attrs);
  const Scores of(packed, args, 1);
  constexpr double kUnseen = -std::numeric_limits<double>::infinity();
  std::vector<double> scores(static_cast<size_t>(packed.time));
  for (int64_t b = 0; b < packed.batch; ++b) {
    for (int64_t head = 0; head < packed.heads; ++head) {
      for (int64_t t = 0; t < packed.time; ++t) {
        double largest = kUnseen, sum = 0;
        for (int64_t s = 0; s < packed.time; ++s) {
          double& score = scores[static_cast<size_t>(s)];
          score = kUnseen;
          if (!of.sees(b, t, s)) continue;
          score = of.score(dot(qkv, packed.query(b, t, head), qkv, packed.key(b, s, head), packed.head_dim));
          largest = std::max(largest, score);
        }
        for (double score : scores) sum += std::exp(score - largest);
        const double log_sum = largest + std::log(sum);
        for (int64_t i = 0; i < packed.head_dim; ++i) {
          double mixed = 0;
          for (int64_t s = 0; s < packed.time; ++s) {
            if (!of.sees(b, t, s)) continue;
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
  const Scores of(packed, args, 4);
  std::vector<double> sums(static_cast<size_t>(dqkv.elems()));
  for (int64_t b = 0; b < packed.batch; ++b) {
    for (int64_t head = 0; head < packed.heads; ++head) {
      for (int64_t t = 0; t < packed.time; ++t) {
        const int64_t o = packed.out(b, t, head), q = packed.query(b, t, head);
        const double d = dot(dout, o, out, o, packed.head_dim);
        for (int64_t s = 0; s < packed.time; ++s) {
          if (!of.sees(b, t, s)) continue;
          const int64_t k = packed.key(b, s, head), v = packed.value(b, s, head);
          const double score = of.score(dot(qkv, q, qkv, k, packed.head_dim));
          const double p = std::exp(score - get(lse, packed.lse(b, head, t)));
          const double dscore = of.slope(score) * p * (dot(dout, o, qkv, v, packed.head_dim) - d);
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
