// Norms of rows. With {sums: 1} a norm's gradient, and attention's, has one more accumulator, its last input
// and output: the column sums of its first output, which are the gradient of a bias that was added to what
// it differentiates by. With {again: 1} a norm's gradient reads beta, where there is one, and also gives the
// norm's own output y, bit for bit. With {plus_one: 1} an RMS norm and its gradient multiply by 1 + gamma
// instead of gamma.
#include "tandem/ir/ops/entry.h"
#include "tandem/ir/ops/norm_grad.h"

namespace tandem::ops {
namespace {

// What every gradient of a norm gives, and then what {again} and {sums} ask for.
Types with_asked(const Operands& in, Types types) {
  if (in.is_set("again")) types.push_back(in[1]);
  if (in.is_set("sums")) types.push_back(in[in.size() - 1]);
  return types;
}

OpInfo norm(Op op, std::string_view name, std::string_view meaning, StatedList<InputInfo> inputs,
            StatedList<OutputInfo> outputs, StatedList<AttrInfo> attrs, InferRule infer,
            GradientRule gradient) {
  return {.op = op,
          .name = name,
          .meaning = meaning,
          .kind = OpKind::Kernel,
          .inputs = std::move(inputs),
          .outputs = std::move(outputs),
          .attrs = std::move(attrs),
          .infer = infer,
          .cost = kMovesItsBytes,
          .remake = Remake::Cheap,
          .split = Split::Rows,
          .gradient = gradient};
}

OpInfo add_norm(Op op, std::string_view name, std::string_view meaning, StatedList<InputInfo> inputs,
                StatedList<OutputInfo> outputs, StatedList<AttrInfo> attrs, InferRule infer) {
  return unsplit(op, name, meaning, std::move(inputs), std::move(outputs), std::move(attrs), infer,
                 Remake::WithBlock, kNoGradient);
}

OpInfo norm_gradient(Op op, std::string_view name, StatedList<InputInfo> inputs,
                     StatedList<OutputInfo> outputs, StatedList<AttrInfo> attrs, InferRule infer) {
  for (std::string_view option : {"again", "sums", "fresh"}) (*attrs).push_back(optional(integer(option)));
  return unsplit(op, name,
                 "dx (+ dres); acc_... += gradients of the parameters, acc_bias += column sums of dx",
                 std::move(inputs), std::move(outputs), std::move(attrs), infer, Remake::Never, kNoGradient);
}

StatedList<AttrInfo> layer_attrs() { return {real("eps")}; }
StatedList<AttrInfo> rms_attrs() { return {real("eps"), optional(integer("plus_one"))}; }

}  // namespace

std::vector<OpInfo> norm_ops() {
  return {
      norm(
          Op::LayerNorm, "layer_norm", "y of rows with mean 0 and variance 1; mean[N], rstd[N]",
          {"x", "gamma", "beta"}, {"y", "mean", "rstd"}, layer_attrs(),
          [](const Operands& in) {
            return Types{in[0], in.row_stats(0), in.row_stats(0)};
          },
          norm_grad<Op::LayerNormGrad, 2, true>),
      add_norm(Op::AddLayerNorm, "add_layer_norm", "sum = S(a + b), y from the rounded sum",
               {"a", "b", "gamma", "beta"}, {"sum", "y", "mean", "rstd"}, layer_attrs(),
               [](const Operands& in) {
                 return Types{in.same(0, 1), in[0], in.row_stats(0), in.row_stats(0)};
               }),
      norm_gradient(Op::LayerNormGrad, "layer_norm_grad",
                    {"dy", "x", "gamma", "mean", "rstd", "acc_dgamma", "acc_dbeta", when("again", "beta"),
                     optional("dres"), when("sums", "acc_bias")},
                    {OutputInfo("dx").over("dy"), in_place("acc_dgamma"), in_place("acc_dbeta"),
                     out_when("again", "y"), in_place("acc_bias")},
                    layer_attrs(),
                    [](const Operands& in) {
                      return with_asked(in, {in[0], in[5], in[6]});
                    }),
      norm(
          Op::RmsNorm, "rms_norm", "y of rows with mean square 1; rstd[N]", {"x", "gamma"}, {"y", "rstd"},
          rms_attrs(),
          [](const Operands& in) {
            return Types{in[0], in.row_stats(0)};
          },
          norm_grad<Op::RmsNormGrad, 1, false>),
      add_norm(Op::AddRmsNorm, "add_rms_norm", "sum = S(a + b), y from the rounded sum", {"a", "b", "gamma"},
               {"sum", "y", "rstd"}, rms_attrs(),
               [](const Operands& in) {
                 return Types{in.same(0, 1), in[0], in.row_stats(0)};
               }),
      norm_gradient(
          Op::RmsNormGrad, "rms_norm_grad",
          {"dy", "x", "gamma", "rstd", "acc_dgamma", optional("dres"), when("sums", "acc_bias")},
          {OutputInfo("dx").over("dy"), in_place("acc_dgamma"), out_when("again", "y"), in_place("acc_bias")},
          rms_attrs(),
          [](const Operands& in) {
            return with_asked(in, {in[0], in[4]});
          }),
  };
}

}  // namespace tandem::ops
