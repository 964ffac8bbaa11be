// Reference optimizers. The weight updated is the master where there is one; the stored weight is then its
// rounding, and beside a bf16 weight only the rest of the master is stored.
#include <algorithm>
#include <limits>
#include <utility>

#include "tandem/base/exact/exact_squares.h"
#include "tandem/base/split_float.h"
#include "tandem/ir/factored_parts.h"
#include "tandem/kernels/cpu/ref/ref_tensor.h"
#include "tandem/optimizers/packed_state.h"
#include "tandem/runtime/optimizer_args.h"

namespace tandem::cpu::ref {
namespace {

void run_exact_square_sums(const KernelArgs& args) {
  const std::vector<int64_t> slots = read_slots(args);
  const int64_t num_slots = args.attrs.integer("num_slots");
  std::vector<ExactSquares> totals(static_cast<size_t>(num_slots / ExactSquares::kLimbs));
  for (size_t piece = 0; piece < slots.size(); ++piece) {
    for (int64_t i = 0; i < args.in[piece + 2].elems(); ++i) {
      const auto g = static_cast<float>(get(args.in[piece + 2], i));
      totals[static_cast<size_t>(slots[piece])].add({&g, 1});
    }
  }
  set(args.out[0], num_slots, 0);
  for (size_t total = 0; total < totals.size(); ++total) {
    double limbs[ExactSquares::kLimbs];
    totals[total].write(limbs);
    const auto at = static_cast<int64_t>(total) * ExactSquares::kLimbs;
    for (int64_t i = 0; i < ExactSquares::kLimbs; ++i) set(args.out[0], at + i, limbs[i]);
    if (!totals[total].is_finite()) set(args.out[0], num_slots, 1);
  }
  for (int64_t i = 0; i < args.in[1].elems(); ++i) set(args.out[0], num_slots + 1 + i, get(args.in[1], i));
}

void run_square_sums(const KernelArgs& args, Stream&) {
  if (args.attrs.integer_or("exact", 0) != 0) return run_exact_square_sums(args);
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
  if (args.attrs.integer_or("exact", 0) != 0) {
    const double total = ExactSquares::total_of_all({sums.as<double>(), static_cast<size_t>(num_slots)});
    sum = get(sums, num_slots) == 0 ? std::pow(get(args.in[1], kHyperInvScale), 2) * total
                                    : std::numeric_limits<double>::infinity();
  }
  set(args.out[0], 0, std::sqrt(sum));
  set(args.out[0], 1, get(sums, num_slots) == 0 && std::isfinite(sum) ? 1 : 0);
}

// What a stored gradient is multiplied by: unscaling and clipping in one.
double gradient_factor(const KernelArgs& args) {
  const double norm = get(args.in[1], 0), clip = get(args.in[0], kHyperClip);
  return get(args.in[0], kHyperInvScale) * (clip > 0 && norm > clip ? clip / (norm + 1e-6) : 1);
}

// A stored gradient, unscaled and clipped by the norm, then by value.
double get_gradient(const KernelArgs& args, const TensorArg& g, int64_t i, double factor) {
  const double largest = get(args.in[0], kHyperClipValue), scaled = get(g, i) * factor;
  return largest > 0 ? std::clamp(scaled, -largest, largest) : scaled;
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

// A weight that no master is stored beside, rounded as if one was.
void set_alone(const TensorArg& w, int64_t i, double value) {
  if (w.type.dtype != DType::BF16) return set(w, i, value);
  w.as<BFloat16>()[i].bits = split_float(static_cast<float>(value)).high;
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
  WideStates(const ParamGroup& group, const OptimizerEntry& entry) : group_(group) {
    if (group.states.empty() || is_float32(group.states[0])) return;
    packed_ = {.type = group.states[0].type.dtype, .names = entry.states.first(group.states.size())};
    for (size_t s = 0; s < group.states.size(); ++s) {
      packed_.codes[s] = group.states[s].as<std::byte>();
      if (!group.scales.empty()) packed_.scales[s] = group.scales[s].as<float>();
      copies_.emplace_back(static_cast<size_t>(group.w->elems()));
    }
    for (size_t s = 0; s < copies_.size(); ++s) {
      numbers_.push_back(copies_[s].data());
      args_.push_back({copies_[s].data(), {DType::F32, group.states[s].type.shape}});
    }
    packed_.unpack(numbers_, group.w->elems());
    group_.states = args_;
  }
  const ParamGroup& group() const { return group_; }

  void pack(int64_t step) {
    if (!copies_.empty()) packed_.pack(numbers_, group_.w->elems(), step, group_.key);
  }

 private:
  static bool is_float32(const TensorArg& state) {
    return state.type.dtype == DType::F32 || state.type.dtype == DType::F64;
  }

  ParamGroup group_;
  PackedStates packed_;
  std::vector<std::vector<float>> copies_;
  std::vector<float*> numbers_;
  std::vector<TensorArg> args_;
};

std::vector<double> own_hyper_values(const TensorArg& hyper) {
  std::vector<double> own;
  for (int64_t i = kHyperOwn; i < hyper.elems(); ++i) own.push_back(get(hyper, i));
  return own;
}

// What a rule makes of norms of whole parameters, of `elems` elements; `sums` are those of squares.
template <typename Rule>
double trust_in(const TensorArg& sums, const ParamGroup& group, const ExactStep& step, double elems) {
  if constexpr (Rule::kEntry.granularity == Granularity::Tensor) {
    std::vector<float> hyper(kHyperOwn + Rule::kEntry.hyper.size());  // rules look before their own, too
    hyper[kHyperAverage] = static_cast<float>(step.average);
    std::copy_n(step.own, Rule::kEntry.hyper.size(), hyper.begin() + kHyperOwn);
    const typename Rule::Scalars scalars =
        Rule::scalars(hyper.data() + kHyperOwn, step.lr, static_cast<int64_t>(step.count));
    if (group.decayed || Rule::kEntry.factored)
      return Rule::trust(scalars, step.decay, get(sums, 2 * group.slot) / elems,
                         get(sums, 2 * group.slot + 1) / elems);
  }
  return 1;
}

// The learning rate and the decay of a parameter.
void set_factors(const TensorArg& hyper, const std::vector<GroupFactors>& rates, const ParamGroup& group,
                 ExactStep& step) {
  const GroupFactors& factors = rates.at(group.rate);
  step.lr = get(hyper, kHyperLr) * factors.lr;
  step.decay = group.decayed ? get(hyper, kHyperDecay) * factors.decay : 0;
}

// The optimizer's definition (its header in tandem/optimizers), unless the step is skipped; zeroes the
// gradients, unless they are to be kept.
template <Op kOp, typename Rule>
void run_update(const KernelArgs& args, Stream&) {
  const TensorArg& hyper = args.in[0];
  const std::vector<double> own = own_hyper_values(hyper);
  ExactStep step{0, 0, get(hyper, kHyperStep), own.data()};
  const bool takes_gradients = !Rule::kEntry.takes_directions();
  const std::vector<GroupFactors> rates = read_rates(args.attrs);
  step.average = get(hyper, kHyperAverage);
  const double factor = takes_gradients ? gradient_factor(args) : 1;
  const bool skip = get(args.in[1], 1) == 0;  // the gradients are not finite
  const bool keep_gradients = args.attrs.integer_or("keep", 0) != 0;
  for (const ParamGroup& given : read_param_groups(kOp, args)) {
    WideStates wide(given, Rule::kEntry);
    const ParamGroup& group = wide.group();
    set_factors(hyper, rates, group, step);
    step.trust = trust_in<Rule>(args.in[2], group, step, static_cast<double>(rates.at(group.rate).elems));
    for (int64_t i = 0; i < group.w->elems(); ++i) {
      const double g = takes_gradients ? get_gradient(args, *group.g, i, factor) : get(*group.g, i);
      if (!skip)
        set_weight(group, i,
                   updated<Rule>(step, group, i, g, std::make_index_sequence<Rule::kEntry.rule_states()>()));
      if constexpr (Rule::kEntry.averages) {
        if (!skip) set_alone(*group.w, i, Rule::shown(step, get(*group.master, i), get(group.states[0], i)));
      }
      if (!keep_gradients) set(*group.g, i, 0);
    }
    if (!skip) wide.pack(static_cast<int64_t>(step.count));
  }
}

template <typename Rule, size_t... kStates>
double measured(const ExactStep& step, const ParamGroup& group, int64_t i, double g,
                std::index_sequence<kStates...>) {
  return Rule::measured(step, get_weight(group, i), g, get(group.states[kStates], i)...);
}

template <Op kOp, typename Rule>
void run_parameter_sums(const KernelArgs& args, Stream&) {
  const TensorArg &hyper = args.in[0], &sums = args.out[0];
  const std::vector<double> own = own_hyper_values(hyper);
  ExactStep step{0, 0, get(hyper, kHyperStep), own.data()};
  const std::vector<GroupFactors> rates = read_rates(args.attrs);
  const double factor = gradient_factor(args);
  for (int64_t i = 0; i < sums.elems(); ++i) set(sums, i, 0);
  for (const ParamGroup& given : read_measured_groups(kOp, args)) {
    const WideStates wide(given, Rule::kEntry);
    const ParamGroup& group = wide.group();
    set_factors(hyper, rates, group, step);
    for (int64_t i = 0; i < group.w->elems(); ++i) {
      const double g =
          Rule::kEntry.takes_directions() ? get(*group.g, i) : get_gradient(args, *group.g, i, factor);
      const double other =
          measured<Rule>(step, group, i, g, std::make_index_sequence<Rule::kEntry.rule_states()>());
      accumulate(sums, 2 * group.slot, std::pow(get_weight(group, i), 2));
      accumulate(sums, 2 * group.slot + 1, std::pow(other, 2));
    }
  }
}

void run_blend_weights(const KernelArgs& args, Stream&) {
  const double share = get(args.in[0], 0);
  for (int64_t i = 0; i < args.out[0].elems(); ++i)
    set_alone(args.out[0], i, get(args.in[2], i) + share * get(args.in[3], i));
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

void run_exchange_weights(const KernelArgs& args, Stream&) {
  const ParamGroup group{.w = &args.out[0],
                         .g = nullptr,
                         .states = {},
                         .master = args.out.size() > 2 ? &args.out[2] : nullptr,
                         .decayed = false,
                         .scales = {}};
  for (int64_t i = 0; i < args.out[0].elems(); ++i) {
    const double weight = get_weight(group, i), average = get(args.out[1], i);
    set_weight(group, i, average);
    set(args.out[1], i, weight);
  }
}

void run_muon_direction(const KernelArgs& args, Stream&) {
  const TensorArg &g = args.in[2], &m = args.in[3];
  const std::vector<double> own = own_hyper_values(args.in[0]);
  const double factor = gradient_factor(args);
  const bool skip = get(args.in[1], 1) == 0;
  for (int64_t i = 0; i < g.elems(); ++i) {
    double mean = get(m, i);
    set(args.out[0], i, skip ? 0 : Muon::direction(own.data(), get_gradient(args, g, i, factor), mean));
    if (!skip) set(m, i, mean);
    if (args.attrs.integer_or("keep", 0) == 0) set(g, i, 0);
  }
}

// Calls visit(element of the piece, row, column).
template <typename Visit>
void for_factored(const FactoredPart& part, Visit&& visit) {
  for (const auto& [offset, box] : part.boxes) {
    int64_t at = offset;
    for (int64_t row = box.row_begin; row < box.row_end; ++row) {
      for (int64_t col = box.col_begin; col < box.col_end; ++col) visit(at++, row, col);
    }
  }
}

void run_factor_sums(const KernelArgs& args, Stream&) {
  const TensorArg& sums = args.out[0];
  const double factor = gradient_factor(args);
  const std::vector<FactoredPart> parts = parse_factored(args.attrs.text("parts"));
  for (int64_t i = 0; i < sums.elems(); ++i) set(sums, i, 0);
  for (size_t i = 0; i < parts.size(); ++i) {
    for_factored(parts[i], [&](int64_t at, int64_t row, int64_t col) {
      const double square = std::pow(get_gradient(args, args.in[2 + i], at, factor), 2);
      accumulate(sums, parts[i].first + row, square);
      if (!parts[i].factors.is_vector())
        accumulate(sums, parts[i].first + parts[i].factors.rows + col, square);
    });
  }
}

void run_factor_moments(const KernelArgs& args, Stream&) {
  if (get(args.in[1], 1) == 0) return;  // the step is skipped
  const double share = get(args.in[0], kHyperAverage);
  const std::vector<Factors> list = parse_factors(args.attrs.text("factors"));
  int64_t next = 0;
  for (size_t s = 0; s < list.size(); ++s) {
    for (int64_t i = 0; i < list[s].size(); ++i) {
      const int64_t counted = i >= list[s].rows ? list[s].rows : list[s].is_vector() ? 1 : list[s].cols;
      const double mean = get(args.in[2], next++) / static_cast<double>(counted), old = get(args.out[s], i);
      set(args.out[s], i, old + share * (mean - old));
    }
  }
}

void run_factor_directions(const KernelArgs& args, Stream&) {
  if (get(args.in[1], 1) == 0) return;
  const double factor = gradient_factor(args);
  const std::vector<FactoredPart> parts = parse_factored(args.attrs.text("parts"));
  for (size_t i = 0; i < parts.size(); ++i) {
    const TensorArg &g = args.out[2 * i], &state = args.out[2 * i + 1];
    const Factors& factors = parts[i].factors;
    double mean = 0;
    for (int64_t row = 0; row < factors.rows; ++row)
      mean += get(state, row) / static_cast<double>(factors.rows);
    for_factored(parts[i], [&](int64_t at, int64_t row, int64_t col) {
      const double root = factors.is_vector()
                              ? Adafactor::root_of(get(state, row))
                              : Adafactor::root_of(get(state, row), get(state, factors.rows + col), mean);
      set(g, at, get_gradient(args, g, at, factor) * root);
    });
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
#define TANDEM_ADD(type, name) add(registry, Op::type##Sums, run_parameter_sums<Op::type, type>);
  TANDEM_TENSOR_OPTIMIZERS(TANDEM_ADD)
#undef TANDEM_ADD
  add(registry, Op::BlendWeights, run_blend_weights);
  add(registry, Op::Ema, run_ema);
  add(registry, Op::ExchangeWeights, run_exchange_weights);
  add(registry, Op::FactorSums, run_factor_sums);
  add(registry, Op::FactorMoments, run_factor_moments);
  add(registry, Op::FactorDirections, run_factor_directions);
  add(registry, Op::MuonDirection, run_muon_direction);
  add(registry, Op::NormalizeMatrix, run_normalize_matrix);
  add(registry, Op::PlaceMatrix, run_place_matrix);
  add(registry, Op::WeightedSum, run_weighted_sum);
}

}  // namespace tandem::cpu::ref
