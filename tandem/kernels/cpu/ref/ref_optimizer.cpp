// Reference optimizers. The weight updated is the master where there is one; the stored weight is then its
// rounding, and beside a bf16 weight only the rest of the master is stored.
#include "tandem/base/split_float.h"
#include "tandem/kernels/cpu/ref/ref_tensor.h"
#include "tandem/runtime/optimizer_args.h"

namespace tandem::cpu::ref {
namespace {

void run_square_sums(const KernelArgs& args, Stream&) {
  const TensorArg &stats = args.in[1], &sums = args.out[0];
  const double inv_scale = get(args.in[0], kHyperInvScale);
  const std::vector<int64_t> slots = read_slots(args);
  const int64_t num_slots = args.attrs.integer("num_slots");
  for (int64_t i = 0; i <= num_slots; ++i) set(sums, i, 0);
  for (size_t piece = 0; piece < slots.size(); ++piece) {
    const TensorArg& g = args.in[piece + 2];
    double sum = 0;
    for (int64_t i = 0; i < g.elems(); ++i) sum += std::pow(get(g, i) * inv_scale, 2);
    accumulate(sums, slots[piece], sum);
    accumulate(sums, num_slots, std::isfinite(sum) ? 0 : 1);
  }
  for (int64_t i = 0; i < stats.elems(); ++i) set(sums, num_slots + 1 + i, get(stats, i));
}

void run_global_norm(const KernelArgs& args, Stream&) {
  const TensorArg& sums = args.in[0];
  const int64_t num_slots = args.attrs.integer("num_slots");
  double sum = 0;
  for (int64_t i = 0; i < num_slots; ++i) sum += get(sums, i);
  set(args.out[0], 0, std::sqrt(sum));
  set(args.out[0], 1, get(sums, num_slots) == 0 && std::isfinite(sum) ? 1 : 0);
}

struct Step {
  double lr, beta1, beta2, eps, decay, step;
  double grad_factor;  // what a stored gradient is multiplied by: unscaling and clipping in one
  bool skip;           // the gradients are not finite: leave weights and moments alone
};

Step read_step(const KernelArgs& args) {
  const TensorArg &hyper = args.in[0], &norm = args.in[1];
  const double total_norm = get(norm, 0), clip = get(hyper, kHyperClip);
  const double clip_factor = clip > 0 && total_norm > clip ? clip / (total_norm + 1e-6) : 1;
  return {.lr = get(hyper, kHyperLr),
          .beta1 = get(hyper, kHyperBeta1),
          .beta2 = get(hyper, kHyperBeta2),
          .eps = get(hyper, kHyperEps),
          .decay = get(hyper, kHyperDecay),
          .step = get(hyper, kHyperStep),
          .grad_factor = get(hyper, kHyperInvScale) * clip_factor,
          .skip = get(norm, 1) == 0};
}

// The number that is trained.
double get_weight(const ParamGroup& group, int64_t i) {
  if (group.master == nullptr) return get(*group.w, i);
  if (group.master->type.dtype != DType::I16) return get(*group.master, i);
  return join_float({group.w->as<BFloat16>()[i].bits, group.master->as<int16_t>()[i]});
}

void set_weight(const ParamGroup& group, int64_t i, double value) {
  if (group.master != nullptr && group.master->type.dtype == DType::I16) {
    const SplitFloat halves = split_float(static_cast<float>(value));
    group.w->as<BFloat16>()[i].bits = halves.high;
    group.master->as<int16_t>()[i] = halves.low;
    return;
  }
  if (group.master != nullptr) set(*group.master, i, value);
  set(*group.w, i, group.master != nullptr ? get(*group.master, i) : value);
}

// Calls update(w, g, i) -> new w for every element, unless the step is skipped; zeroes the gradients, unless
// they are to be kept.
template <typename Update>
void update_group(const KernelArgs& args, const ParamGroup& group, const Step& step, Update&& update) {
  const bool keep_gradients = args.attrs.integer_or("keep", 0) != 0;
  for (int64_t i = 0; i < group.w->elems(); ++i) {
    if (!step.skip)
      set_weight(group, i, update(get_weight(group, i), get(*group.g, i) * step.grad_factor, i));
    if (!keep_gradients) set(*group.g, i, 0);
  }
}

void run_adamw(const KernelArgs& args, Stream&) {
  const Step step = read_step(args);
  const double correction1 = 1 - std::pow(step.beta1, step.step);
  const double correction2 = 1 - std::pow(step.beta2, step.step);
  for (const ParamGroup& group : read_param_groups(Op::AdamW, args)) {
    const double keep = 1 - step.lr * (group.decayed ? step.decay : 0);
    update_group(args, group, step, [&](double w, double g, int64_t i) {
      const double m = step.beta1 * get(*group.m, i) + (1 - step.beta1) * g;
      const double v = step.beta2 * get(*group.v, i) + (1 - step.beta2) * g * g;
      set(*group.m, i, m);
      set(*group.v, i, v);
      return w * keep - step.lr * (m / correction1) / (std::sqrt(v / correction2) + step.eps);
    });
  }
}

// Momentum without dampening; decay is added to the gradient.
void run_sgd(const KernelArgs& args, Stream&) {
  const Step step = read_step(args);
  for (const ParamGroup& group : read_param_groups(Op::Sgd, args)) {
    update_group(args, group, step, [&](double w, double g, int64_t i) {
      const double m = step.beta1 * get(*group.m, i) + g + (group.decayed ? step.decay : 0) * w;
      set(*group.m, i, m);
      return w - step.lr * m;
    });
  }
}

}  // namespace

void add_optimizer(KernelRegistry& registry) {
  add(registry, Op::SquareSums, run_square_sums);
  add(registry, Op::GlobalNorm, run_global_norm);
  add(registry, Op::AdamW, run_adamw);
  add(registry, Op::Sgd, run_sgd);
}

}  // namespace tandem::cpu::ref
