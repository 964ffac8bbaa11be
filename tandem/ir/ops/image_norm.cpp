// Norms of images: batch norm, on one rank or over the micro-batches of several (whose statistics are
// gathered, or summed, in between), and group norm. With {relu: 1} batch norm gives the ReLU of its output,
// or of the output's sum with a residual, each rounded on its way; its gradient then takes that of the ReLU,
// which it makes again from x and beta.
#include "tandem/ir/ops/entry.h"
#include "tandem/ir/ops/norm_grad.h"

namespace tandem::ops {
namespace {

Types batch_norm_types(const Operands& in) {
  return {in[0], in.channel_stats(0), in.channel_stats(0), in[3], in[4]};
}

TensorType channel_pair(const Operands& in) {
  return {stats_dtype(in[0].dtype), Shape({2, in.shape(0).last()})};
}

Types group_norm_types(const Operands& in) {
  const int64_t groups = in.attr("groups");
  in.require(in.shape(0).last() % groups == 0, "{} groups do not divide {} channels", groups,
             in.shape(0).last());
  const TensorType stats{stats_dtype(in[0].dtype), Shape({in.shape(0)[0] * groups})};
  return {in[0], stats, stats};
}

// The sums that the gradient of every row needs are over all ranks' rows; those of the parameters stay this
// rank's own, as the data axis adds them up later.
void sync_batch_norm_grad(Context& c, int32_t id) {
  const std::vector<Value> in = c.node(id).inputs;
  const int64_t size = c.node(id).attrs.integer("size");
  const Value dy = c.dy(id), mean{id, 1}, rstd{id, 2};
  const Value sums =
      c.emit(Op::BatchNormGradStats, {dy, in[0], mean, rstd, c.accumulator(in[1]), c.accumulator(in[2])});
  c.set_accumulator(in[1], {sums.node, 1});
  c.set_accumulator(in[2], {sums.node, 2});
  const Value total = c.emit(Op::AllReduce, {sums}, {{"axis", "data"}, {"size", size}});
  c.add(in[0], c.emit(Op::BatchNormGradApply, {dy, in[0], in[1], mean, rstd, total}, {{"size", size}}));
}

}  // namespace

std::vector<OpInfo> image_norm_ops() {
  return {
      unsplit(Op::BatchNorm, "batch_norm",
              "y, mean[C] and rstd[C] over all but the last dim; the running statistics move by momentum; "
              "{sync: 1} asks for all ranks' rows",
              {"x", "gamma", "beta", "running_mean", "running_var", optional("residual")},
              {"y", "mean", "rstd", in_place("running_mean"), in_place("running_var")},
              {real("eps"), real("momentum"), optional(integer("sync")), optional(integer("relu"))},
              batch_norm_types, Remake::WithBlock, norm_grad<Op::BatchNormGrad, 2, true>),
      unsplit(Op::BatchNormInfer, "batch_norm_infer", "y by the running statistics",
              {"x", "gamma", "beta", "running_mean", "running_var", optional("residual")}, {"y"},
              {real("eps"), optional(integer("relu"))}, like<0>, Remake::Never, kNoGradient),
      unsplit(Op::BatchNormGrad, "batch_norm_grad", "dx; acc_... += gradients of the parameters",
              {"dy", "x", "gamma", "mean", "rstd", "acc_dgamma", "acc_dbeta", when("relu", "beta")},
              {"dx", in_place("acc_dgamma"), in_place("acc_dbeta")},
              {real("eps"), real("momentum"), optional(integer("sync")), optional(integer("relu")),
               optional(integer("fresh"))},
              like<0, 5, 6>, Remake::Never, kNoGradient),
      unsplit(
          Op::BatchNormStats, "batch_norm_stats",
          "parts f32[2,C] = (mean, sum of squared distances from it) of this rank's rows", {"x"}, {"parts"},
          kNone, [](const Operands& in) { return Types{channel_pair(in)}; }, Remake::WithBlock, kNoGradient),
      unsplit(Op::BatchNormApply, "batch_norm_apply", "batch_norm by parts[size*2,C] of all ranks",
              {"x", "gamma", "beta", "running_mean", "running_var", "parts"},
              {"y", "mean", "rstd", in_place("running_mean"), in_place("running_var")},
              {real("eps"), real("momentum"), integer("size")}, batch_norm_types, Remake::WithBlock,
              sync_batch_norm_grad),
      unsplit(
          Op::BatchNormGradStats, "batch_norm_grad_stats",
          "sums f32[2,C] = (sum of dy, sum of dy * normalised x); acc_... += gradients of the parameters",
          {"dy", "x", "mean", "rstd", "acc_dgamma", "acc_dbeta"},
          {"sums", in_place("acc_dgamma"), in_place("acc_dbeta")}, {optional(integer("fresh"))},
          [](const Operands& in) {
            return Types{channel_pair(in), in[4], in[5]};
          },
          Remake::Never, kNoGradient),
      unsplit(Op::BatchNormGradApply, "batch_norm_grad_apply", "dx by the sums[2,C] over all ranks' rows",
              {"dy", "x", "gamma", "mean", "rstd", "sums"}, {"dx"}, {integer("size")}, like<0>, Remake::Never,
              kNoGradient),
      unsplit(Op::GroupNorm, "group_norm", "y of x[B,H,W,C]; mean[B*groups], rstd[B*groups]",
              {"x", "gamma", "beta"}, {"y", "mean", "rstd"}, {real("eps"), integer("groups")},
              group_norm_types, Remake::Cheap, norm_grad<Op::GroupNormGrad, 2, true>),
      unsplit(Op::GroupNormGrad, "group_norm_grad", "dx; acc_... += gradients of the parameters",
              {"dy", "x", "gamma", "mean", "rstd", "acc_dgamma", "acc_dbeta"},
              {"dx", in_place("acc_dgamma"), in_place("acc_dbeta")}, {real("eps"), integer("groups")},
              like<0, 5, 6>, Remake::Never, kNoGradient),
  };
}

}  // namespace tandem::ops
