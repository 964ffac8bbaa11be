// Reference loss over a vocabulary whose columns lie on several ranks.
#include <limits>

#include "tandem/kernels/cpu/ref/ref_tensor.h"

namespace tandem::cpu::ref {
namespace {

constexpr double kNowhere = -std::numeric_limits<double>::infinity();

void run_vocab_parts(const KernelArgs& args, Stream&) {
  const TensorArg &logits = args.in[0], &targets = args.in[1], &parts = args.out[0];
  const int64_t columns = logits.type.shape.last(), first = args.attrs.integer("first");
  const int64_t vocab = args.attrs.integer_or("valid", columns);
  for (int64_t n = 0; n < targets.elems(); ++n) {
    const int64_t target = index(targets, n);
    const auto logit = [&](int64_t v) { return get(logits, n * columns + v); };
    int64_t largest = 0;
    double sum = 0, at_target = kNowhere;
    for (int64_t v = 0; v < vocab && target >= 0; ++v) {
      if (logit(v) > logit(largest)) largest = v;
      if (first + v == target) at_target = logit(v);
    }
    set(parts, 4 * n, target >= 0 ? logit(largest) : kNowhere);
    // The sum is under the maximum as it is stored.
    const double shift = get(parts, 4 * n) == kNowhere ? 0 : get(parts, 4 * n);
    for (int64_t v = 0; v < vocab && target >= 0; ++v) sum += std::exp(logit(v) - shift);
    set(parts, 4 * n + 1, sum);
    set(parts, 4 * n + 2, at_target);
    set(parts, 4 * n + 3, static_cast<double>(first + largest));
  }
}

struct VocabRow {
  double largest;
  double sum;     // of exp(logit - largest) over the whole vocabulary
  double target;  // its logit
  int64_t id;     // of the first of the largest
};

VocabRow join_parts(const TensorArg& parts, int64_t size, int64_t rows, int64_t n) {
  const auto field = [&](int64_t rank, int64_t i) { return get(parts, 4 * (rank * rows + n) + i); };
  double largest = kNowhere, target = kNowhere, sum = 0, id = 0;
  for (int64_t rank = 0; rank < size; ++rank) {
    if (rank == 0 || field(rank, 0) > largest) {
      largest = field(rank, 0);
      id = field(rank, 3);
    }
    if (field(rank, 2) != kNowhere) target = field(rank, 2);
  }
  for (int64_t rank = 0; rank < size; ++rank) sum += field(rank, 1) * std::exp(field(rank, 0) - largest);
  return {largest, sum, target, static_cast<int64_t>(id)};
}

void store_loss(const TensorArg& parts, const TensorArg& targets, int64_t size, const TensorArg& stats) {
  double nll = 0, correct = 0;
  for (int64_t n = 0; n < targets.elems(); ++n) {
    if (index(targets, n) < 0) continue;
    const VocabRow row = join_parts(parts, size, targets.elems(), n);
    nll += std::log(row.sum) - (row.target - row.largest);
    correct += row.id == index(targets, n) ? 1 : 0;
  }
  set(stats, 0, nll);
  set(stats, 1, correct);
}

void run_vocab_loss(const KernelArgs& args, Stream&) {
  store_loss(args.in[0], args.in[1], args.attrs.integer("size"), args.out[0]);
}

void run_vocab_loss_grad(const KernelArgs& args, Stream&) {
  const TensorArg &logits = args.in[0], &targets = args.in[1], &parts = args.in[2];
  const int64_t columns = logits.type.shape.last(), first = args.attrs.integer("first");
  const int64_t vocab = args.attrs.integer_or("valid", columns), size = args.attrs.integer("size");
  const double scale = get(args.in[3], 0);
  store_loss(parts, targets, size, args.out[1]);
  for (int64_t n = 0; n < targets.elems(); ++n) {
    const int64_t target = index(targets, n);
    const VocabRow row = join_parts(parts, size, targets.elems(), n);
    for (int64_t v = 0; v < columns; ++v) {
      const double softmax = std::exp(get(logits, n * columns + v) - row.largest) / row.sum;
      const double gradient = softmax - (first + v == target ? 1 : 0);
      set(args.out[0], n * columns + v, target < 0 || v >= vocab ? 0 : gradient * scale);
    }
  }
}

}  // namespace

void add_vocab_loss(KernelRegistry& registry) {
  add(registry, Op::VocabParts, run_vocab_parts);
  add(registry, Op::VocabLoss, run_vocab_loss);
  add(registry, Op::VocabLossGrad, run_vocab_loss_grad);
}

}  // namespace tandem::cpu::ref
