// The data axis: ranks that each see their own micro-batches and share one set of weights.
//
// Changes: parameters become views of their unit's flat buffer. Where weights are sharded (fsdp), that buffer
//   is gathered before each use, one unit ahead, in forward and again in backward, and dies after the last.
//   Gradient accumulators become views of a flat buffer too; once a unit's last gradient is written, the
//   buffer is reduce-scattered and dies, and backward goes on with the next unit meanwhile.
//   Sharded matrices that are read in 8 bits only (fp8.h) are quantized by the ranks that hold them, with
//   scales of all ranks' parts, and gathered in 8 bits.
// Keeps: what is computed, and its order. Every strategy reduces the same buffers in the same order, so that
//   ddp, zero1, zero2 and fsdp give the same bits. In a fixed order, each pass adds its micro-batches'
//   gradients to the sum one after the other. As ranks are dealt the micro-batches of a batch in turn, that
//   is the order of the batch, whether one rank has made them or many.
#pragma once

#include "tandem/compile/pass_info.h"
#include "tandem/compile/units.h"
#include "tandem/config/config.h"
#include "tandem/ir/graph.h"

namespace tandem {

// By then it is settled what reads the weights, and when.
inline constexpr PassInfo kDataPass = {.name = "data",
                                       .needs_before = {"differentiate", "recompute", "fuse"},
                                       .needs_after = {"schedule", "update"}};

// What the ranks of the data axis keep only a part of, besides their gradients (keeps_whole_gradients).
struct Sharding {
  bool optimizer = false;
  bool weights = false;
};
Sharding sharding_of(Strategy strategy);

struct DataAxisOptions {
  Sharding sharding;
  bool accumulates = false;  // several passes make a step
  bool once = false;         // the last of them reduces what all have added up
  bool overwrites = false;  // a pass writes gradients and adds to none that are there (overwrite_gradients.h)
  DType reduce = DType::F32;     // in which gradients travel; they are summed in fp32
  bool fixed_order = false;      // micro-batch after micro-batch, on however many ranks they were
  bool in_pipeline = false;      // forward and backward of a micro-batch lie apart
  bool offload_weights = false;  // weights live in host memory and are copied in for each use
  bool offload_optimizer = false;
};

// For the pass of one micro-batch, which may leave reducing to a later one, and for a forward graph.
Graph shard_data(const Graph& graph, const UnitLayout& layout, const DataAxisOptions& options,
                 bool reduces = true);

// Whether passes add to a persistent buffer of the unit's size: on one rank of the axis (unless the order of
// sums is fixed: then a pass's gradients are made apart there, too), or where only the last pass reduces, in
// place. Else each pass fills a buffer that is gone once it was reduced into this
// rank's part, which alone is kept, whatever the strategy.
bool keeps_whole_gradients(const UnitLayout& layout, const DataAxisOptions& options);

// Leaves of a unit, alike in the pass, the update and evaluation.
Value weights_leaf(Graph& graph, const UnitLayout& layout, const Unit& unit, const DataAxisOptions& options);
Value gradients_leaf(Graph& graph, const Unit& unit, const DataAxisOptions& options);  // the whole unit
Value gradient_part_leaf(Graph& graph, const UnitLayout& layout, const Unit& unit);    // this rank's part
Value view(Graph& graph, Value flat, int64_t begin, const Shape& shape, int32_t block, Phase phase);

}  // namespace tandem
