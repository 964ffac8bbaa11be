// Reference optimizers. The weight updated is the master where there is one; the stored weight is then its
// rounding, and beside a bf16 weight only the rest of the master is stored.
#include <algorithm>
#include <utility>

#include "tandem/base/split_float.h"
#include "tandem/ir/placed_boxes.h"
#include "tandem/kernels/cpu/ref/ref_tensor.h"
#include "tandem/optimizers/packed_state.h"
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

// What a stored gradient is multiplied by: unscaling and clipping in one.
double gradient_factor(const KernelArgs& args) {
  const double norm = get(args.in[1], 0), clip = get(args.in[0], kHyperClip);
  return get(args.in[0], kHyperInvScale) * (clip > 0 && norm > clip ? clip / (norm + 1e-6) : 1);
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

// One element: the new weight, and its states in place.
template <typename Rule, size_t... kStates>
double updated(const ExactStep& step, const ParamGroup& group, int64_t i, double g,
               std::index_sequence<kStates...>) {
  [[maybe_unused]] double states[sizeof...(kStates) + 1] = {get(group.states[kStates], i)...};
  const double w = Rule::update(step, get_weight(group, i), g, states[kStates]...);
  (set(group.states[kStates], i, states[kStates]), ...);
  return w;
}

// A group whose states are f32: its own, or copies of those that are kept in fewer bits.
class WideStates {
 public:
  WideStates(const ParamGroup& group, const OptimizerEntry& entry)
      : given_(group), group_(group), entry_(entry) {
    if (group.states.empty() || is_float32(group.states[0])) return;
    for (size_t s = 0; s < group.states.size(); ++s) {
      copies_.emplace_back(static_cast<size_t>(group.w->elems()));
      unpack_states(group.states[s].type.dtype, entry.states[s].square, group.states[s].data, scales(s),
                    copies_.back());
    }
    for (size_t s = 0; s < copies_.size(); ++s)
      args_.push_back({copies_[s].data(), {DType::F32, group.states[s].type.shape}});
    group_.states = args_;
  }
  const ParamGroup& group() const { return group_; }

  void pack(int64_t step) {
    for (size_t s = 0; s < copies_.size(); ++s)
      pack_states(given_.states[s].type.dtype, entry_.states[s].square, copies_[s],
                  rounding_key(step, static_cast<int>(s)), given_.key, given_.states[s].data, scales(s));
  }

 private:
  static bool is_float32(const TensorArg& state) {
    return state.type.dtype == DType::F32 || state.type.dtype == DType::F64;
  }
  float* scales(size_t s) const { return given_.scales.empty() ? nullptr : given_.scales[s].as<float>(); }

  const ParamGroup given_;
  ParamGroup group_;
  const OptimizerEntry& entry_;
  std::vector<std::vector<float>> copies_;
  std::vector<TensorArg> args_;
};

// The optimizer's definition (its header in tandem/optimizers), unless the step is skipped; zeroes the
// gradients, unless they are to be kept.
template <Op kOp, typename Rule>
void run_update(const KernelArgs& args, Stream&) {
  const TensorArg& hyper = args.in[0];
  std::vector<double> own;
  for (int64_t i = kHyperOwn; i < hyper.elems(); ++i) own.push_back(get(hyper, i));
  ExactStep step{0, 0, get(hyper, kHyperStep), own.data()};
  const std::vector<GroupFactors> rates = read_rates(args.attrs);
  const bool takes_gradients = Rule::kEntry.granularity == Granularity::Element;
  const double factor = takes_gradients ? gradient_factor(args) : 1;
  const bool skip = get(args.in[1], 1) == 0;  // the gradients are not finite
  const bool keep_gradients = args.attrs.integer_or("keep", 0) != 0;
  for (const ParamGroup& given : read_param_groups(kOp, args)) {
    WideStates wide(given, Rule::kEntry);
    const ParamGroup& group = wide.group();
    const GroupFactors& factors = rates.at(group.rate);
    step.lr = get(hyper, kHyperLr) * factors.lr;
    step.decay = group.decayed ? get(hyper, kHyperDecay) * factors.decay : 0;
    for (int64_t i = 0; i < group.w->elems(); ++i) {
      const double g = get(*group.g, i) * factor;
      if (!skip)
        set_weight(group, i,
                   updated<Rule>(step, group, i, g, std::make_index_sequence<Rule::kEntry.rule_states()>()));
      if (!keep_gradients) set(*group.g, i, 0);
    }
    if (!skip) wide.pack(static_cast<int64_t>(step.count));
  }
}

void run_ema(const KernelArgs& args, Stream&) {
  if (get(args.in[1], 1) == 0) return;  // the step was skipped
  const double decay = args.attrs.real("decay");
  const bool first = get(args.in[0], kHyperStep) <= 1;
  const ParamGroup group{.w = &args.in[3],
                         .g = nullptr,
                         .states = {},
                         .master = args.in.size() > 4 ? &args.in[4] : nullptr,
                         .decayed = false,
                         .scales = {}};
  for (int64_t i = 0; i < args.out[0].elems(); ++i) {
    const double w = get_weight(group, i);
    set(args.out[0], i, first ? w : decay * get(args.in[2], i) + (1 - decay) * w);
  }
}

void run_muon_direction(const KernelArgs& args, Stream&) {
  const TensorArg &hyper = args.in[0], &g = args.in[2], &m = args.in[3];
  std::vector<double> own;
  for (int64_t i = kHyperOwn; i < hyper.elems(); ++i) own.push_back(get(hyper, i));
  const double factor = gradient_factor(args);
  const bool skip = get(args.in[1], 1) == 0;
  for (int64_t i = 0; i < g.elems(); ++i) {
    double mean = get(m, i);
    set(args.out[0], i, skip ? 0 : Muon::direction(own.data(), get(g, i) * factor, mean));
    if (!skip) set(m, i, mean);
    if (args.attrs.integer_or("keep", 0) == 0) set(g, i, 0);
  }
}

// Calls visit(element of the matrix, element of the flat buffer).
template <typename Visit>
void for_placed(const KernelArgs& args, int64_t cols, Visit&& visit) {
  for (const auto& [offset, box] : parse_placed(args.attrs.text("parts"))) {
    int64_t at = offset;
    for (int64_t row = box.row_begin; row < box.row_end; ++row) {
      for (int64_t col = box.col_begin; col < box.col_end; ++col) visit(row * cols + col, at++);
    }
  }
}

int64_t columns_of(const TensorArg& matrix) { return whole_box(matrix.type.shape).col_end; }

void run_normalize_matrix(const KernelArgs& args, Stream&) {
  const TensorArg &x = args.in[0], &y = args.out[0];
  double sum = 0;
  for_placed(args, columns_of(y), [&](int64_t, int64_t flat) { sum += get(x, flat) * get(x, flat); });
  const double norm = std::max(std::sqrt(sum), args.attrs.real("eps"));
  for_placed(args, columns_of(y), [&](int64_t i, int64_t flat) { set(y, i, get(x, flat) / norm); });
}

void run_place_matrix(const KernelArgs& args, Stream&) {
  const TensorArg& x = args.in[1];
  for_placed(args, columns_of(x), [&](int64_t i, int64_t flat) { set(args.out[0], flat, get(x, i)); });
}

void run_weighted_sum(const KernelArgs& args, Stream&) {
  const double p = args.attrs.real("p"), q = args.attrs.real("q");
  for (int64_t i = 0; i < args.out[0].elems(); ++i)
    set(args.out[0], i, p * get(args.in[0], i) + q * get(args.in[1], i));
}

}  // namespace

void add_optimizer(KernelRegistry& registry) {
  add(registry, Op::SquareSums, run_square_sums);
  add(registry, Op::GlobalNorm, run_global_norm);
#define TANDEM_ADD(type, name) add(registry, Op::type, run_update<Op::type, type>);
  TANDEM_OPTIMIZERS(TANDEM_ADD)
#undef TANDEM_ADD
  add(registry, Op::Ema, run_ema);
  add(registry, Op::MuonDirection, run_muon_direction);
  add(registry, Op::NormalizeMatrix, run_normalize_matrix);
  add(registry, Op::PlaceMatrix, run_place_matrix);
  add(registry, Op::WeightedSum, run_weighted_sum);
}

}  // namespace tandem::cpu::ref
