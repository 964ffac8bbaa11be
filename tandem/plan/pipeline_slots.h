// A pipeline rank's step with any number of passes, from one that was compiled with few of them.
//
// A compiled step of a pipeline is the same few lists of commands over and over: the forward and the backward
// of each chunk of the model, in the order of the schedule. A step of many passes is the same lists in a
// longer order, and stages in the middle that hold as many blocks have the same lists. Memory is as steady:
// from two or three times as many passes as stages on, only the samples of further passes add to it.
#pragma once

#include <span>

#include "tandem/compile/pipeline_order.h"
#include "tandem/plan/simulate.h"

namespace tandem::plan {

struct ChunkItems {
  std::vector<Item> forward;
  std::vector<Item> backward;
};

// Takes the items of a pass apart into those of its slots, which came in this order, and gives one forward
// and one backward of each chunk, as they are in the middle of a step.
std::vector<ChunkItems> cut_slots(const std::vector<Item>& items, std::span<const PipelineSlot> order,
                                  int chunks);

// The same for a stage that is `by` further down the pipeline: its neighbours are, too.
void move_stage(std::vector<ChunkItems>& chunks, int by);

// Slots in an order, as one run.
Program in_order(const std::vector<ChunkItems>& chunks, std::span<const PipelineSlot> order);

// Passes that are enough to compile of so many: all of them, where a longer step would not be alike.
int64_t passes_to_compile(PipelineSchedule schedule, int stages, int64_t passes);

// For each stage the first one whose step is alike but for its place, in what it computes; it holds as many
// passes in flight or more. The first and the last are like no other.
std::vector<int> alike_stages(int num_blocks, int stages, int chunks);

}  // namespace tandem::plan
