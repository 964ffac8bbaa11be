// The update. `hyper` is f32[n], see optimizers/entry.h; tensors come in groups, one group a parameter.
//
// The norm is made of one sum of squares per parameter ("slot"), so that it does not matter which rank holds
// which: sums are f64 (one per slot, number of pieces that are not finite, the statistics). A master is the
// f32 number that is trained, and its w is that rounded; beside a bf16 w it is the i16 half that w lacks
// (base/split_float.h). Where norm[1] is 0, a step is skipped. Gradients are left zeroed for the next step,
// unless that overwrites them ({keep: 1}).
//
// The loss scale of fp16 is state that the step itself keeps: scaler f64[2], see kScalerScale.
#include "tandem/ir/ops/entry.h"

namespace tandem::ops {
namespace {

TensorType norm_type() { return {DType::F64, Shape({2})}; }
TensorType scaler_type() { return {DType::F64, Shape({kScalerSlots})}; }

Types updated_types(const Operands& in) { return {in.all().begin() + 2, in.all().end()}; }

Types scale_loss_types(const Operands& in) {
  in.require_types({{DType::F32, Shape({1})}, scaler_type()});
  return {in[0]};
}

Types unscale_hyper_types(const Operands& in) {
  in.require_types({{DType::F32, Shape({in.shape(0).elems()})}, scaler_type()});
  return {in[0]};
}

Types next_loss_scale_types(const Operands& in) {
  in.require_types({scaler_type(), norm_type()});
  return {in[0]};
}

Types ema_types(const Operands& in) {
  for (size_t i = 3; i < in.size(); ++i)
    in.require(in.shape(i) == in.shape(2), "an average {} of {}", in.show(2), in.show(i));
  return {in[2]};
}

OpInfo update_op(Op op, std::string_view name, std::string_view meaning, StatedList<InputInfo> inputs,
                 StatedList<OutputInfo> outputs, StatedList<AttrInfo> attrs, InferRule infer) {
  return unsplit(op, name, meaning, std::move(inputs), std::move(outputs), std::move(attrs), infer,
                 Remake::Never, kNoGradient);
}

constexpr std::string_view kScaleNames[] = {"scale1", "scale2"};  // of the states, in their order

// A step of the optimizer's rule on each group of w, g, its states and, where there are masters, a master.
// Where the rule works on matrices, directions stand in the place of g, and no states.
OpInfo optimizer(OptimizerKind kind) {
  const OptimizerEntry& entry = optimizer_entry(kind);
  std::vector<InputInfo> inputs = {"hyper", "norm", each("w"), each("g")};
  for (const StateTensor& state : entry.states.first(entry.rule_states()))
    inputs.push_back(each(InputInfo(state.name)));
  for (size_t i = 0; i < entry.rule_states(); ++i)
    inputs.push_back(when("scaled", each(InputInfo(kScaleNames[i]))));
  inputs.push_back(when("masters", each("master")));
  std::vector<OutputInfo> outputs;
  for (size_t i = 2; i < inputs.size(); ++i) outputs.push_back(in_place(inputs[i].name));
  return update_op(optimizer_op(kind), entry.name, "a step on each group",
                   StatedList<InputInfo>(std::move(inputs)), StatedList<OutputInfo>(std::move(outputs)),
                   {integer("masters"), text("decay"),  // whether each w decays: "1,0,.."
                    optional(integer("keep")),
                    optional(integer("scaled")),  // states are in 8 bits, with scales beside them
                    optional(text("rates")),      // factors of lr and decay, where not all are 1: "1,1;0.1,0"
                    optional(text("rate")),       //   and which of these are each w's: "0,1,.."
                    optional(text("keys"))},      // where states are not f32: of each w, "slot,element;.."
                   updated_types);
}

}  // namespace

std::vector<OpInfo> optimizer_ops() {
  std::vector<OpInfo> ops = {
      update_op(Op::SquareSums, "square_sums", "sums f64[num_slots + 1 + k] of gradients and stats f64[k]",
                {"hyper", "stats", each("g")}, {"sums"},
                {text("slots"),  // of each g: "0,1,.."
                 integer("num_slots")},
                [](const Operands& in) {
                  return Types{{DType::F64, Shape({in.attr("num_slots") + 1 + in.shape(1).elems()})}};
                }),
      update_op(Op::GlobalNorm, "global_norm",
                "norm f64[2] = (norm of the unscaled gradients, 1 if finite else 0)", {"sums"}, {"norm"},
                {integer("num_slots")}, [](const Operands&) { return Types{norm_type()}; }),
      update_op(Op::ScaleLoss, "scale_loss", "y = scale f32[1] times the loss scale", {"scale", "scaler"},
                {"y"}, kNone, scale_loss_types),
      update_op(Op::UnscaleHyper, "unscale_hyper", "y = hyper, with 1 / loss scale in its slot",
                {"hyper", "scaler"}, {"y"}, kNone, unscale_hyper_types),
      update_op(Op::NextLossScale, "next_loss_scale",
                "halved where norm[1] is 0, doubled after `window` good steps, but never below 1 nor doubled "
                "beyond 2^24",
                {"scaler", "norm"}, {in_place("scaler")}, {integer("window")}, next_loss_scale_types),
      update_op(
          Op::Ema, "ema",
          "ema = decay ema + (1 - decay) w, w the master where there is one; at the first update w itself; "
          "as it was where norm[1] is 0",
          {"hyper", "norm", "ema", "w", when("masters", "master")}, {in_place("ema")},
          {real("decay"), integer("masters")}, ema_types),
  };
  for (size_t kind = 0; kind < kNumOptimizers; ++kind)
    ops.push_back(optimizer(static_cast<OptimizerKind>(kind)));
  return ops;
}

}  // namespace tandem::ops
