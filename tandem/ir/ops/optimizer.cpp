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

template <size_t kScalars>
Types updated_types(const Operands& in) {
  return {in.all().begin() + kScalars, in.all().end()};
}

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

Types blend_types(const Operands& in) {
  in.require(in[0] == TensorType{DType::F32, Shape({1})}, "expected a share f32[1], found {}", in.show(0));
  in.require(in.shape(1) == in.shape(2) && in.shape(1) == in.shape(3), "{}, {} and {} differ", in.show(1),
             in.show(2), in.show(3));
  return {in[1]};
}

Types ema_types(const Operands& in) {
  for (size_t i = 3; i < in.size(); ++i)
    in.require(in.shape(i) == in.shape(2), "an average {} of {}", in.show(2), in.show(i));
  return {in[2]};
}

Types exchange_types(const Operands& in) {
  for (size_t i = 1; i < in.size(); ++i)
    in.require(in.shape(i) == in.shape(0), "{} and {} differ", in.show(0), in.show(i));
  return {in.all().begin(), in.all().end()};
}

OpInfo update_op(Op op, std::string_view name, std::string_view meaning, StatedList<InputInfo> inputs,
                 StatedList<OutputInfo> outputs, StatedList<AttrInfo> attrs, InferRule infer) {
  return unsplit(op, name, meaning, std::move(inputs), std::move(outputs), std::move(attrs), infer,
                 Remake::Never, kNoGradient);
}

constexpr std::string_view kScaleNames[] = {"scale1", "scale2"};  // of the states, in their order

// What an optimizer knows of each parameter.
void add_group_inputs(const OptimizerEntry& entry, std::vector<InputInfo>& inputs) {
  inputs.insert(inputs.end(), {each("w"), each("g")});
  for (const StateTensor& state : entry.states.first(entry.rule_states()))
    inputs.push_back(each(InputInfo(state.name)));
  for (size_t i = 0; i < entry.rule_states(); ++i)
    inputs.push_back(when("scaled", each(InputInfo(kScaleNames[i]))));
  inputs.push_back(when("masters", each("master")));
}

// A step of the optimizer's rule on each group of w, g, its states and, where there are masters, a master.
// Where the rule works on matrices, directions stand in the place of g, and no states. Where it reads norms
// of whole parameters, their sums of squares come first.
OpInfo optimizer(OptimizerKind kind) {
  const OptimizerEntry& entry = optimizer_entry(kind);
  const bool measured = entry.granularity == Granularity::Tensor;
  std::vector<InputInfo> inputs = {"hyper", "norm"};
  if (measured) inputs.push_back("sums");
  add_group_inputs(entry, inputs);
  std::vector<OutputInfo> outputs;
  for (size_t i = entry.num_scalars(); i < inputs.size(); ++i) outputs.push_back(in_place(inputs[i].name));
  return update_op(optimizer_op(kind), entry.name, "a step on each group",
                   StatedList<InputInfo>(std::move(inputs)), StatedList<OutputInfo>(std::move(outputs)),
                   {integer("masters"), text("decay"),  // whether each w decays: "1,0,.."
                    optional(integer("keep")),
                    optional(integer("scaled")),  // states are in 8 bits, with scales beside them
                    optional(text("slots")),      // of each w among the parameters: "0,1,.."
                    optional(text("rates")),      // factors of lr and decay, and elements of all of w, where
                                                  //   not all are 1: "1,1;0.1,0,64"
                    optional(text("rate")),       //   and which of these are each w's: "0,1,.."
                    optional(text("keys"))},      // where states are not f32: of each w, "slot,element;.."
                   measured ? updated_types<3> : updated_types<2>);
}

// Two sums of squares for each slot: of the numbers that are trained, and of what the rule says.
OpInfo parameter_sums(OptimizerKind kind, std::string_view name) {
  std::vector<InputInfo> inputs = {"hyper", "norm"};
  add_group_inputs(optimizer_entry(kind), inputs);
  return update_op(sums_op(kind), name, "sums f64[2 num_slots] of squares, of what is here of each parameter",
                   StatedList<InputInfo>(std::move(inputs)), {"sums"},
                   {integer("masters"), text("decay"), optional(integer("scaled")), optional(text("rates")),
                    optional(text("rate")),
                    text("slots"),  // of each w: "0,1,.."
                    integer("num_slots")},
                   [](const Operands& in) {
                     return Types{{DType::F64, Shape({2 * in.attr("num_slots")})}};
                   });
}

}  // namespace

std::vector<OpInfo> optimizer_ops() {
  std::vector<OpInfo> ops = {
      update_op(Op::SquareSums, "square_sums", "sums f64[num_slots + 1 + k] of gradients and stats f64[k]",
                {"hyper", "stats", each("g")}, {"sums"},
                {text("slots"),  // of each g: "0,1,.."
                 integer("num_slots"),
                 optional(integer(
                     "exact"))},  // each is an exact sum, of so many limbs (base/exact/exact_squares.h)
                [](const Operands& in) {
                  return Types{{DType::F64, Shape({in.attr("num_slots") + 1 + in.shape(1).elems()})}};
                }),
      update_op(
          Op::GlobalNorm, "global_norm", "norm f64[2] = (norm of the unscaled gradients, 1 if finite else 0)",
          {"sums", when("exact", "hyper")}, {"norm"}, {integer("num_slots"), optional(integer("exact"))},
          [](const Operands&) { return Types{norm_type()}; }),
      update_op(Op::ScaleLoss, "scale_loss", "y = scale f32[1] times the loss scale", {"scale", "scaler"},
                {"y"}, kNone, scale_loss_types),
      update_op(Op::UnscaleHyper, "unscale_hyper", "y = hyper, with 1 / loss scale in its slot",
                {"hyper", "scaler"}, {"y"}, kNone, unscale_hyper_types),
      update_op(Op::NextLossScale, "next_loss_scale",
                "halved where norm[1] is 0, doubled after `window` good steps, but never below 1 nor doubled "
                "beyond 2^24",
                {"scaler", "norm"}, {in_place("scaler")}, {integer("window")}, next_loss_scale_types),
      update_op(Op::BlendWeights, "blend_weights", "w = x + share lead", {"share", "w", "x", "lead"},
                {in_place("w")}, kNone, blend_types),
      update_op(
          Op::Ema, "ema",
          "ema = decay ema + (1 - decay) w, w the master where there is one; at the first update w itself; "
          "as it was where norm[1] is 0",
          {"hyper", "norm", "ema", "w", when("masters", "master")}, {in_place("ema")},
          {real("decay"), integer("masters")}, ema_types),
      update_op(Op::ExchangeWeights, "exchange_weights",
                "ema and w change places, with the master where there is one, of which w is then rounded",
                {"w", "ema", when("masters", "master")},
                {in_place("w"), in_place("ema"), out_when("masters", in_place("master"))},
                {integer("masters")}, exchange_types),
  };
  for (size_t kind = 0; kind < kNumOptimizers; ++kind)
    ops.push_back(optimizer(static_cast<OptimizerKind>(kind)));
#define TANDEM_SUMS(type, name) ops.push_back(parameter_sums(OptimizerKind::type, #name "_sums"));
  TANDEM_TENSOR_OPTIMIZERS(TANDEM_SUMS)
#undef TANDEM_SUMS
  return ops;
}

}  // namespace tandem::ops
