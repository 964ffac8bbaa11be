// Reference attention over a cache: the new rows go into it, then each looks at what it may see.
#include <algorithm>

#include "tandem/kernels/cpu/ref/ref_tensor.h"

namespace tandem::cpu::ref {
namespace {

struct CachedShape {
  int64_t batch, time, heads, kv_heads, slots, head_dim, first, real;

  explicit CachedShape(const KernelArgs& args)
      : batch(args.in[0].type.shape[0]),
        time(args.in[0].type.shape[1]),
        heads(args.attrs.integer("heads")),
        kv_heads(args.attrs.integer("kv_heads")),
        slots(args.in[1].type.shape[2]),
        head_dim(args.in[1].type.shape[3]),
        first(index(args.in[3], 0)),
        real(index(args.in[3], 1)) {}
  int64_t packed(int64_t b, int64_t t, int64_t slot) const {
    return ((b * time + t) * (heads + 2 * kv_heads) + slot) * head_dim;
  }
  int64_t cached(int64_t b, int64_t kv_head, int64_t position) const {
    return ((b * kv_heads + kv_head) * slots + position % slots) * head_dim;
  }
};

void append(const CachedShape& shape, const KernelArgs& args) {
  for (int64_t b = 0; b < shape.batch; ++b) {
    for (int64_t t = 0; t < shape.real; ++t) {
      for (int64_t head = 0; head < shape.kv_heads; ++head) {
        const int64_t to = shape.cached(b, head, shape.first + t);
        for (int64_t i = 0; i < shape.head_dim; ++i) {
          set(args.out[1], to + i, get(args.in[0], shape.packed(b, t, shape.heads + head) + i));
          set(args.out[2], to + i,
              get(args.in[0], shape.packed(b, t, shape.heads + shape.kv_heads + head) + i));
        }
      }
    }
  }
}

void attend(const CachedShape& shape, const KernelArgs& args, int64_t b, int64_t t, int64_t head) {
  const TensorArg &qkv = args.in[0], &keys = args.out[1], &values = args.out[2], &out = args.out[0];
  const double scale = args.attrs.real_or("scale", 1 / std::sqrt(static_cast<double>(shape.head_dim)));
  const double cap = args.attrs.real_or("softcap", 0);
  const int64_t own = shape.first + t, kv_head = head / (shape.heads / shape.kv_heads);
  const int64_t oldest = std::max<int64_t>(0, own + 1 - args.attrs.integer_or("window", own + 1));
  std::vector<double> scores;
  for (int64_t position = oldest; position <= own; ++position) {
    double score = 0;
    for (int64_t i = 0; i < shape.head_dim; ++i)
      score += get(qkv, shape.packed(b, t, head) + i) * get(keys, shape.cached(b, kv_head, position) + i);
    score *= scale;
    scores.push_back(cap == 0 ? score : cap * std::tanh(score / cap));
  }
  const double largest = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& score : scores) sum += score = std::exp(score - largest);
  for (int64_t i = 0; i < shape.head_dim; ++i) {
    double mixed = 0;
    for (int64_t position = oldest; position <= own; ++position)
      mixed += scores[static_cast<size_t>(position - oldest)] / sum *
               get(values, shape.cached(b, kv_head, position) + i);
    set(out, ((b * shape.time + t) * shape.heads + head) * shape.head_dim + i, mixed);
  }
}

void run_cached_attention(const KernelArgs& args, Stream&) {
  const CachedShape shape(args);
  append(shape, args);
  for (int64_t b = 0; b < shape.batch; ++b) {
    for (int64_t t = 0; t < shape.time; ++t) {
      for (int64_t head = 0; head < shape.heads; ++head) {
        if (t < shape.real) {
          attend(shape, args, b, t, head);
          continue;
        }
        for (int64_t i = 0; i < shape.head_dim; ++i)
          set(args.out[0], ((b * shape.time + t) * shape.heads + head) * shape.head_dim + i, 0);
      }
    }
  }
}

}  // namespace

void add_cached_attention(KernelRegistry& registry) {
  add(registry, Op::CachedAttention, run_cached_attention);
}

}  // namespace tandem::cpu::ref
