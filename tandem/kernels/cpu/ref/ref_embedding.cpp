// Reference embedding lookup and its gradients.
#include <algorithm>

#include "tandem/kernels/cpu/ref/ref_tensor.h"

namespace tandem::cpu::ref {
namespace {

// The table's row of id i, or -1 where the table is a shard of the vocabulary that does not hold it.
int64_t table_row(const TensorArg& ids, int64_t i, const TensorArg& table, const Attrs& attrs) {
  const int64_t id = index(ids, i), row = id - attrs.integer_or("first", 0);
  const int64_t rows = attrs.integer_or("valid", table.type.shape[0]);
  TANDEM_CHECK(id >= 0 && (attrs.has("first") || id < rows), "token id {} with a vocabulary of {}", id, rows);
  return row >= 0 && row < rows ? row : -1;
}

void run_embedding(const KernelArgs& args, Stream&) {
  const TensorArg &ids = args.in[0], &table = args.in[1], &y = args.out[0];
  const int64_t dim = table.type.shape.last(), time = ids.type.shape.last();
  const bool by_token = args.attrs.integer_or("positions", 0) != 0;
  const int64_t first = args.in.size() > 3 && !by_token ? index(args.in[3], 0) : 0;
  for (int64_t row = 0; row < ids.elems(); ++row) {
    const int64_t from = table_row(ids, row, table, args.attrs);
    int64_t t = by_token ? index(args.in[3], row) : first + row % time;
    if (args.in.size() > 2 && !by_token) t = std::min(t, args.in[2].type.shape[0] - 1);
    TANDEM_CHECK(t >= 0 && (!by_token || t < args.in[2].type.shape[0]), "position {}", t);
    for (int64_t i = 0; i < dim; ++i) {
      const double position = args.in.size() > 2 ? get(args.in[2], t * dim + i) : 0;
      set(y, row * dim + i, (from < 0 ? 0 : get(table, from * dim + i)) + position);
    }
  }
}

void run_embedding_grad(const KernelArgs& args, Stream&) {
  begin_accumulators(args, {0});
  const TensorArg &ids = args.in[1], &dy = args.in[2], &acc = args.out[0];
  const int64_t dim = acc.type.shape.last();
  std::vector<double> sums(static_cast<size_t>(acc.elems()));
  for (int64_t row = 0; row < ids.elems(); ++row) {
    const int64_t to = table_row(ids, row, acc, args.attrs);
    if (to < 0) continue;
    for (int64_t i = 0; i < dim; ++i) sums[static_cast<size_t>(to * dim + i)] += get(dy, row * dim + i);
  }
  for (int64_t i = 0; i < acc.elems(); ++i) accumulate(acc, i, sums[static_cast<size_t>(i)]);
}

void run_position_grad(const KernelArgs& args, Stream&) {
  begin_accumulators(args, {0});
  const TensorArg &dy = args.in[1], &acc = args.out[0];
  // The table may have more positions than the batch has time steps.
  const int64_t per_sequence = dy.elems() / dy.type.shape[0];
  for (int64_t i = 0; i < per_sequence; ++i) {
    double sum = 0;
    for (int64_t b = 0; b < dy.type.shape[0]; ++b) sum += get(dy, b * per_sequence + i);
    accumulate(acc, i, sum);
  }
}

}  // namespace

void add_embedding(KernelRegistry& registry) {
  add(registry, Op::Embedding, run_embedding);
  add(registry, Op::EmbeddingGrad, run_embedding_grad);
  add(registry, Op::PositionGrad, run_position_grad);
}

}  // namespace tandem::cpu::ref
