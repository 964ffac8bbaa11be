// What optimizers read of whole parameters: two sums of squares for each, of the numbers that are trained and
// of what the rule says of them. Summed in double, in an order that depends on the pieces' sizes only.
#include <algorithm>

#include "tandem/kernels/cpu/optimizer/optimizer_chunks.h"
#include "tandem/kernels/cpu/optimizer/optimizer_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tandem/kernels/cpu/optimizer/parameter_sums.cpp"
#include "hwy/foreach_target.h"
#include "tandem/kernels/cpu/optimizer/optimizer_update-inl.h"
#include "tandem/kernels/cpu/optimizer/rules-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {
namespace {

// A running sum of squares in double.
class SquareSum {
 public:
  SquareSum() : low_(hn::Zero(kWide)), high_(hn::Zero(kWide)) {}
  HWY_INLINE void add(FloatVec v) {
    const auto low = hn::PromoteTo(kWide, hn::LowerHalf(kHalf, v));
    low_ = hn::MulAdd(low, low, low_);
#if HWY_TARGET != HWY_SCALAR  // whose only lane is the lower half
    const auto high = hn::PromoteTo(kWide, hn::UpperHalf(kHalf, v));
    high_ = hn::MulAdd(high, high, high_);
#endif
  }
  double total() const { return hn::GetLane(hn::SumOfLanes(kWide, hn::Add(low_, high_))); }

 private:
  static constexpr hn::Half<FloatTag> kHalf = {};
  static constexpr hn::Rebind<double, hn::Half<FloatTag>> kWide = {};
  hn::Vec<hn::Rebind<double, hn::Half<FloatTag>>> low_, high_;
};

template <size_t kStates>
HWY_INLINE FloatVec measured(const cpu::UpdateChunk& chunk, FloatVec w, FloatVec g, size_t i, auto part,
                             const auto& rule) {
  [[maybe_unused]] const FloatTag d;
  if constexpr (kStates == 0) {
    return rule.measured(w, g);
  } else if constexpr (kStates == 1) {
    return rule.measured(w, g, load_float(d, chunk.states[0] + i, part));
  } else {
    return rule.measured(w, g, load_float(d, chunk.states[0] + i, part),
                         load_float(d, chunk.states[1] + i, part));
  }
}

template <typename Optimizer>
void add_squares(const cpu::UpdateChunk& chunk, const OptimizerStep<Optimizer>& step, double* sums) {
  const Rule<Optimizer> rule(step, chunk.decayed);
  const GradientReader reader(step);
  SquareSum weights, others;
  with_types<false>(chunk, [&]<Trained kTrained, typename W, typename G>() {
    const FloatTag d;
    const W* w = static_cast<const W*>(chunk.w);
    const G* g = static_cast<const G*>(chunk.g);
    for_each_vector(static_cast<size_t>(chunk.elems), [&](size_t i, auto part) {
      const auto number = load_trained<kTrained>(d, chunk, w, i, part);
      weights.add(number);
      others.add(
          measured<Optimizer::kEntry.rule_states()>(chunk, number, reader.read(g + i, part), i, part, rule));
    });
  });
  sums[0] += weights.total();
  sums[1] += others.total();
}

#define TANDEM_MEASURE(type, name)                                                                  \
  void measure_##name(const cpu::UpdateChunk& chunk, const OptimizerStep<type>& step, double* to) { \
    add_squares(chunk, step, to);                                                                   \
  }
TANDEM_TENSOR_OPTIMIZERS(TANDEM_MEASURE)
#undef TANDEM_MEASURE

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem {
#define TANDEM_EXPORT(type, name) HWY_EXPORT(measure_##name);
TANDEM_TENSOR_OPTIMIZERS(TANDEM_EXPORT)
#undef TANDEM_EXPORT

namespace cpu {
namespace {

int64_t num_chunks(std::span<const ParamGroup> groups) {
  int64_t chunks = 0;
  for (const ParamGroup& group : groups) chunks += OptimizerChunks::count(group.w->elems());
  return chunks;
}

size_t workspace(const CallSignature& call, int) {
  const auto size = static_cast<size_t>(param_group_size(measured_op(call.op), *call.attrs));
  int64_t chunks = 0;
  for (size_t i = 2; i < call.in.size(); i += size)
    chunks += OptimizerChunks::count(call.in[i].shape.elems());
  return static_cast<size_t>(2 * chunks) * sizeof(double);
}

// Adds up the sums of a parameter's chunks.
void finish(std::span<const ParamGroup> groups, const double* partials, const TensorArg& out) {
  auto* sums = out.as<double>();
  std::fill_n(sums, out.elems(), 0.0);
  for (const ParamGroup& group : groups) {
    double total[2] = {};
    for (int64_t chunk = 0; chunk < OptimizerChunks::count(group.w->elems()); ++chunk, partials += 2) {
      total[0] += partials[0];
      total[1] += partials[1];
    }
    sums[2 * group.slot] += total[0];
    sums[2 * group.slot + 1] += total[1];
  }
}

#define TANDEM_RUN(type, name)                                                                 \
  void run_##name##_sums(const KernelArgs& args, Stream& stream) {                             \
    const std::vector<OptimizerStep<type>> steps = steps_of<type>(args);                       \
    const auto measure = HWY_DYNAMIC_DISPATCH(measure_##name);                                 \
    const std::vector<ParamGroup> groups = read_measured_groups(Op::type, args);               \
    auto* partials = reinterpret_cast<double*>(args.workspace.data());                         \
    std::fill_n(partials, 2 * num_chunks(groups), 0.0);                                        \
    measure_all(Op::type, groups, stream.pool(), [&](const UpdateChunk& chunk, int64_t task) { \
      measure(chunk, steps[chunk.rate], partials + 2 * task);                                  \
    });                                                                                        \
    finish(groups, partials, args.out[0]);                                                     \
  }
TANDEM_TENSOR_OPTIMIZERS(TANDEM_RUN)
#undef TANDEM_RUN

}  // namespace

void add_parameter_sums_kernels(KernelRegistry& kernels) {
#define TANDEM_KERNEL(type, name) \
  kernels.add({"cpu." #name "_sums", Op::type##Sums, supports_parameter_sums, workspace, run_##name##_sums});
  TANDEM_TENSOR_OPTIMIZERS(TANDEM_KERNEL)
#undef TANDEM_KERNEL
}

}  // namespace cpu
}  // namespace tandem
#endif
