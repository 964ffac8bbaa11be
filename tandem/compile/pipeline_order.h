// In which order a pipeline rank runs the forwards and backwards of a step's micro-batches.
//
// Every schedule is the same three parts: some forwards to fill the pipeline, then one forward and one
// backward in turn, then the backwards that are left. They differ in how many forwards fill it: all of them
// (gpipe, which keeps every micro-batch's activations), or as many as it takes for the first gradient to come
// back (1f1b: stages - stage in flight). interleaved gives each rank several chunks of the model, and takes
// turns of `stages` micro-batches at each: the idle time at both ends shrinks by the number of chunks.
//
// Two promises hold for all of them (pipeline_order_test):
// - each chunk's forwards, and its backwards, run in the order of the micro-batches, so that gradients are
//   the sums 0 + 1 + 2 + ..., bit for bit those of one rank accumulating the same micro-batches;
// - what a rank sends to another, activations and gradients of all chunks together, the other receives in the
//   order it was sent: one ordered channel a pair and direction is enough, and nothing is ever reordered.
//   A send may wait for its recv, and sends may run one after the other on a stream of their own, but a rank
//   must be able to go on computing while kSendsUnderWay of its sends wait: with fewer, neighbours that both
//   send before they receive would wait for each other.
#pragma once

#include <vector>

#include "tandem/config/config.h"

namespace tandem {

inline constexpr int kSendsUnderWay = 2;

struct PipelineSlot {
  bool forward = true;
  int chunk_on_rank = 0;  // its chunk of the model is chunk_on_rank * stages + stage
  int micro_batch = 0;
  bool operator==(const PipelineSlot&) const = default;
};

// Throws ConfigError where several chunks a rank meet a schedule other than interleaved, or a number of
// micro-batches that the stages do not divide.
std::vector<PipelineSlot> pipeline_order(PipelineSchedule schedule, int stage, int stages,
                                         int chunks_per_stage, int micro_batches);

}  // namespace tandem
