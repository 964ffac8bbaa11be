// Reference norms of queries and keys in packed qkv.
#include "tandem/kernels/cpu/ref/ref_tensor.h"

namespace tandem::cpu::ref {
namespace {

// A stretch of a token's row that is normalised together.
struct Group {
  int64_t begin, width;  // in the row
  bool key;
};

std::vector<Group> groups_of(const Shape& qkv, const Attrs& attrs) {
  const int64_t heads = attrs.integer("heads"), kv_heads = attrs.integer("kv_heads");
  const int64_t head_dim = qkv.last() / (heads + 2 * kv_heads);
  if (attrs.integer_or("all", 0) != 0)
    return {{0, heads * head_dim, false}, {heads * head_dim, kv_heads * head_dim, true}};
  std::vector<Group> groups;
  for (int64_t head = 0; head < heads + kv_heads; ++head)
    groups.push_back({head * head_dim, head_dim, head >= heads});
  return groups;
}

void run_qk_norm(const KernelArgs& args, Stream&) {
  const TensorArg &qkv = args.in[0], &y = args.out[0], &rstd = args.out[1];
  const double eps = args.attrs.real("eps"), plus = args.attrs.integer_or("plus_one", 0) != 0 ? 1 : 0;
  const std::vector<Group> groups = groups_of(qkv.type.shape, args.attrs);
  const int64_t width = qkv.type.shape.last();
  int64_t at = 0;
  for (int64_t row = 0; row < qkv.type.shape.rows(); ++row) {
    for (const Group& group : groups) {
      const int64_t base = row * width + group.begin;
      double squares = 0;
      for (int64_t i = 0; i < group.width; ++i) squares += std::pow(get(qkv, base + i), 2);
      set(rstd, at, 1 / std::sqrt(squares / static_cast<double>(group.width) + eps));
      for (int64_t i = 0; i < group.width; ++i)
        set(y, base + i, get(qkv, base + i) * get(rstd, at) * (plus + get(args.in[group.key ? 2 : 1], i)));
      ++at;
    }
    const int64_t turned = groups.back().begin + groups.back().width;
    for (int64_t i = turned; i < width; ++i) set(y, row * width + i, get(qkv, row * width + i));
  }
}

// With g = dy * gain: dx = rstd * (g - x_hat * mean(g * x_hat)). dqkv may be dy.
void run_qk_norm_grad(const KernelArgs& args, Stream&) {
  begin_accumulators(args, {1, 2});
  const TensorArg &dy = args.in[0], &qkv = args.in[1], &rstd = args.in[4], &dqkv = args.out[0];
  const double plus = args.attrs.integer_or("plus_one", 0) != 0 ? 1 : 0;
  const std::vector<Group> groups = groups_of(qkv.type.shape, args.attrs);
  const int64_t width = qkv.type.shape.last();
  std::vector<double> sums[2];
  for (size_t k = 0; k < 2; ++k) sums[k].resize(static_cast<size_t>(args.out[1 + k].elems()));
  int64_t at = 0;
  for (int64_t row = 0; row < qkv.type.shape.rows(); ++row) {
    for (const Group& group : groups) {
      const int64_t base = row * width + group.begin;
      const size_t kind = group.key ? 1 : 0;
      const double r = get(rstd, at++);
      const auto gain = [&](int64_t i) { return plus + get(args.in[2 + kind], i); };
      double mean = 0;
      for (int64_t i = 0; i < group.width; ++i) {
        const double x_hat = get(qkv, base + i) * r;
        mean += get(dy, base + i) * gain(i) * x_hat / static_cast<double>(group.width);
        sums[kind][static_cast<size_t>(i)] += get(dy, base + i) * x_hat;
      }
      for (int64_t i = 0; i < group.width; ++i)
        set(dqkv, base + i, r * (get(dy, base + i) * gain(i) - get(qkv, base + i) * r * mean));
    }
    const int64_t turned = groups.back().begin + groups.back().width;
    for (int64_t i = turned; i < width; ++i) set(dqkv, row * width + i, get(dy, row * width + i));
  }
  for (size_t k = 0; k < 2; ++k) {
    for (size_t i = 0; i < sums[k].size(); ++i)
      accumulate(args.out[1 + k], static_cast<int64_t>(i), sums[k][i]);
  }
}

}  // namespace

void add_qk_norm(KernelRegistry& registry) {
  add(registry, Op::QkNorm, run_qk_norm);
  add(registry, Op::QkNormGrad, run_qk_norm_grad);
}

}  // namespace tandem::cpu::ref
