// One rank's part of a model that is split over the tensor axis: linears by columns and rows, the vocabulary
// of the embedding and of the loss, and, between the linears, the rows of the residual stream.
//
//   rows --norm--> rows --all_gather--> [B,T,d] --linear [out/t, d]--> columns --attention, gelu, swiglu-->
//   columns --linear [d, in/t]--> partial sums --reduce_scatter--> rows --add--> rows
//
// Which way a linear is split, its weight's `dims` say ("heads,width" and "ffn,width" by columns of its
// output, "width,heads" and "width,ffn" by columns of its input, "vocab,width" is the head); what it feeds
// says which of its rows go together (the queries, keys and values of a head; gate and up).
//
// Changes: shapes, head counts, the loss (vocab_parts, all_gather, vocab_loss). Parameters keep their names;
//   one that is split gets `logical` (its whole shape) and `boxes` (what is here: "0:8,0:32;16:24,0:32" is
//   rows 0..7 and 16..23 of the tensor's canonical form, base/box.h, stacked). Of the vocabulary every rank
//   has as many rows, whether it divides or not: padding follows the last box where it must, and the ops that
//   go by ids have `valid`. A gain or bias that every
//   rank holds, and whose gradient is here made from some of the rows only, gets `tensor_sum=1`: its
//   gradients must be summed over the axis. What is added to a partial sum (learned positions, the bias
//   after a row-split linear) is on tensor rank 0 alone, so its gradient is whole there.
// Keeps: inputs (every rank of the axis reads whole batches), blocks, output names; the statistics are
//   those of all rows on every rank; the output "logits" is this rank's columns.
#pragma once

#include "tandem/base/mesh.h"
#include "tandem/compile/pass_info.h"
#include "tandem/ir/graph.h"

namespace tandem {

// The forward graph is the logical one, in fp32; the update sums what has `tensor_sum`.
inline constexpr PassInfo kTensorPass = {
    .name = "tensor", .needs_before = {"model"}, .needs_after = {"precision", "differentiate", "update"}};

// The graph itself for a tensor axis of one. Throws ConfigError naming the parameter that cannot be split.
Graph shard_tensor(const Graph& forward, const MeshPosition& at);

}  // namespace tandem
