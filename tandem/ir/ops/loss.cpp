// Losses. Targets are i32, -1 = ignored; scale is f32[1] = loss scale / tokens of the global batch; stats are
// f64[2] = (sum of nll, correct). Backward begins with the gradient of a loss (compile/passes/differentiate).
//
// Where a vocabulary is split over ranks, each describes its columns, all parts are gathered (`size` of them,
// rank by rank), and each goes on with its own columns: all of them, or {valid} and padding behind, which
// counts for nothing and whose gradient is zero. A part is f32 (largest logit, sum of exp(logit -
// largest), the target's logit or -inf where it is not here, id of the largest).
//
// A row may have two labels: its loss is the mean of theirs, the target's weighed by the row's share and the
// partner's by the rest; correct is who predicts the target.
//
// A loss may have terms (ir/loss_terms.h) that its gradient, which gives the loss of training, adds to it.
//
// The logits of the linear forms are S(x w^T), then with {scale} S(scale logit), then with {softcap}
// S(cap tanh(logit / cap)), each rounded to the storage type S as single ops would round it.
#include <utility>

#include "tandem/ir/ops/entry.h"

namespace tandem::ops {
namespace {

TensorType stats_type() { return {DType::F64, Shape({2})}; }

void check_rows(const Operands& in) {
  in.require(in.shape(0).rows() == in.shape(1).elems(), "{} rows of logits and {} targets",
             in.shape(0).rows(), in.shape(1).elems());
}

Types loss_types(const Operands& in) {
  check_rows(in);
  return {stats_type()};
}

Types loss_grad_types(const Operands& in) {
  check_rows(in);
  return {in[0], stats_type()};
}

Types mixed_grad_types(const Operands& in) {
  for (size_t i = 3; i < in.size(); ++i)
    in.require(in.shape(i) == in.shape(1), "{} and {} targets", in.show(i), in.shape(1).elems());
  in.require(in.size() != 4, "{} partners and no shares", in.shape(1).elems());
  return loss_grad_types(in);
}

Types vocab_parts_types(const Operands& in) {
  check_rows(in);
  return {{DType::F32, Shape({in.shape(0).rows(), 4})}};
}

Types vocab_loss_types(const Operands& in) {
  const int64_t targets = in.shape(1).elems();
  in.require(in.shape(0) == Shape({in.attr("size") * targets, 4}), "{} is not {} parts for {} targets",
             in.show(0), in.attr("size"), targets);
  return {stats_type()};
}

Types add_stats_types(const Operands& in) {
  in.require(in[0].dtype == DType::F64 && in[1].dtype == DType::F64, "{} and {} are not f64",
             dtype_name(in[0].dtype), dtype_name(in[1].dtype));
  in.require(in.attr_or("at", 0) + in.shape(1).elems() <= in.shape(0).elems(), "{} does not hold {}",
             in.show(0), in.show(1));
  return {in[0]};
}

// Of kProducts products as large as that of x and w.
template <int64_t kProducts>
int64_t linear_flops(const Node&, std::span<const TensorType> in) {
  return kProducts * 2 * in[0].shape.rows() * in[1].shape.elems();
}

int64_t linear_grad_flops(const Node& node, std::span<const TensorType> in) {
  return in.size() > 4 ? linear_flops<3>(node, in) : linear_flops<2>(node, in);
}

OpInfo loss_op(Op op, std::string_view name, std::string_view meaning, StatedList<InputInfo> inputs,
               StatedList<OutputInfo> outputs, StatedList<AttrInfo> attrs, InferRule infer, CostRules cost,
               Split split) {
  return {.op = op,
          .name = name,
          .meaning = meaning,
          .kind = OpKind::Kernel,
          .inputs = std::move(inputs),
          .outputs = std::move(outputs),
          .attrs = std::move(attrs),
          .infer = infer,
          .cost = cost,
          .remake = Remake::WithBlock,
          .split = split,
          .gradient = kNoGradient};
}

}  // namespace

std::vector<OpInfo> loss_ops() {
  OpInfo measure = loss_op(
      Op::Measure, "measure", "mean f64[1] of the elements of x, or of their squares", {"x"}, {"mean"},
      {integer("squares")},
      [](const Operands&) {
        return Types{{DType::F64, Shape({1})}};
      },
      kMovesItsBytes, Split::Mean);
  measure.remake = Remake::Never;  // its number is kept, and x need not be there for it again
  return {
      loss_op(Op::CrossEntropy, "cross_entropy", "stats of logits[N,V]", {"logits", "targets"}, {"stats"},
              {optional(real("smoothing")), optional(real("z"))}, loss_types, kMovesItsBytes, Split::Loss),
      loss_op(Op::CrossEntropyGrad, "cross_entropy_grad", "overwrites the logits with their gradient; stats",
              {"logits", "targets", "scale", optional("partners"), optional("shares")},
              {in_place("logits"), "stats"}, {optional(real("smoothing")), optional(real("z"))},
              mixed_grad_types, kMovesItsBytes, Split::Never),
      loss_op(
          Op::LinearCrossEntropy, "linear_cross_entropy", "cross_entropy of x w^T, `chunk` rows at a time",
          {"x", "w", "targets"}, {"stats"},
          {integer("chunk"), optional(real("scale")), optional(real("softcap"))},
          [](const Operands&) { return Types{stats_type()}; }, multiplies(linear_flops<1>), Split::Never),
      loss_op(
          Op::LinearCrossEntropyGrad, "linear_cross_entropy_grad",
          "dx, stats; acc_dw, unless w is frozen, += gradient of w; `chunk` rows at a time",
          {"x", "w", "targets", "scale", optional("acc_dw")}, {"dx", "stats", in_place("acc_dw")},
          {integer("chunk"), optional(real("scale")), optional(real("softcap")), optional(integer("fresh")),
           optional(real("smoothing")), optional(real("z"))},
          [](const Operands& in) {
            Types types{in[0], stats_type()};
            if (in.size() > 4) types.push_back(in[4]);
            return types;
          },
          multiplies(linear_grad_flops), Split::Never),
      loss_op(Op::VocabParts, "vocab_parts", "parts f32[N,4] of logits[N,V] that begin with id `first`",
              {"logits", "targets"}, {"parts"}, {integer("first"), optional(integer("valid"))},
              vocab_parts_types, kMovesItsBytes, Split::Never),
      loss_op(Op::VocabLoss, "vocab_loss", "stats of parts[size*N,4]", {"parts", "targets"}, {"stats"},
              {integer("size")}, vocab_loss_types, kMovesItsBytes, Split::Never),
      loss_op(Op::VocabLossGrad, "vocab_loss_grad", "overwrites the logits with their gradient; stats",
              {"logits", "targets", "parts", "scale"}, {in_place("logits"), "stats"},
              {integer("first"), optional(integer("valid")), integer("size")}, loss_grad_types,
              kMovesItsBytes, Split::Never),
      loss_op(Op::AddStats, "add_stats",
              "acc f64[n] from `at` on += stats f64[k], {fixed: 1}: rounded so that no order shows",
              {"acc", "stats"}, {in_place("acc")}, {optional(integer("fixed")), optional(integer("at"))},
              add_stats_types, kMovesItsBytes, Split::Never),
      std::move(measure),
  };
}

}  // namespace tandem::ops
