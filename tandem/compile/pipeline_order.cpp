#include "tandem/compile/pipeline_order.h"

#include <algorithm>

#include "tandem/base/error.h"

namespace tandem {
namespace {

// The k-th forward, or backward, of a rank: `stages` micro-batches through one chunk, the same ones through
// its next chunk (backward: from the last chunk to the first), then the next `stages` micro-batches.
PipelineSlot kth(bool forward, int k, int stages, int chunks) {
  if (chunks == 1) return {forward, 0, k};
  const int turn = k / stages % chunks;
  return {forward, forward ? turn : chunks - 1 - turn, k / (stages * chunks) * stages + k % stages};
}

int num_filling(PipelineSchedule schedule, int stage, int stages, int chunks, int total) {
  const int after = stages - 1 - stage;  // ranks behind this one
  switch (schedule) {
    case PipelineSchedule::GPipe: return total;
    case PipelineSchedule::OneFOneB: return std::min(after, total);
    case PipelineSchedule::Interleaved:
      // With one chunk it is 1f1b. With more, the first backward is that of the last chunk, which begins
      // after all chunks but that one had their turn; two forwards a rank behind keep its neighbours busy
      // meanwhile.
      return std::min(chunks == 1 ? after : 2 * after + (chunks - 1) * stages, total);
  }
  return total;
}

}  // namespace

std::vector<PipelineSlot> pipeline_order(PipelineSchedule schedule, int stage, int stages,
                                         int chunks_per_stage, int micro_batches) {
  TANDEM_CHECK(stage >= 0 && stage < stages && chunks_per_stage >= 1 && micro_batches >= 1,
               "pipeline_order: stage {} of {}, {} chunks, {} micro-batches", stage, stages, chunks_per_stage,
               micro_batches);
  if (chunks_per_stage > 1 && schedule != PipelineSchedule::Interleaved) {
    throw ConfigError("parallel.schedule: {} chunks a stage need interleaved; use that, or one chunk",
                      chunks_per_stage);
  }
  if (chunks_per_stage > 1 && micro_batches % stages != 0) {
    throw ConfigError(
        "parallel.schedule: interleaved needs a number of micro-batches that {} stages divide, found {}; use "
        "{}",
        stages, micro_batches, (micro_batches / stages + 1) * stages);
  }
  const int total = micro_batches * chunks_per_stage;
  const int filling = num_filling(schedule, stage, stages, chunks_per_stage, total);
  std::vector<PipelineSlot> order;
  for (int k = 0; k < total + filling; ++k) {
    if (k < total) order.push_back(kth(true, k, stages, chunks_per_stage));
    if (k >= filling) order.push_back(kth(false, k - filling, stages, chunks_per_stage));
  }
  return order;
}

}  // namespace tandem
