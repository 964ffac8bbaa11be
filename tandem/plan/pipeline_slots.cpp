#include "tandem/plan/pipeline_slots.h"

#include <algorithm>
#include <map>

#include "tandem/base/error.h"
#include "tandem/compile/passes/stage.h"

namespace tandem::plan {
namespace {

// Slots of one direction that follow each other, and their items.
struct Stretch {
  std::span<const PipelineSlot> slots;
  std::span<const Item> items;
};

std::vector<Stretch> stretches(const std::vector<Item>& items, std::span<const PipelineSlot> order) {
  const auto is_forward = [&](size_t i) { return items[i].command->phase == Phase::Forward; };
  std::vector<Stretch> list;
  size_t slot = 0, item = 0;
  while (slot < order.size()) {
    size_t slot_end = slot, item_end = item;
    while (slot_end < order.size() && order[slot_end].forward == order[slot].forward) ++slot_end;
    while (item_end < items.size() && is_forward(item_end) == order[slot].forward) ++item_end;
    list.push_back({order.subspan(slot, slot_end - slot), std::span(items).subspan(item, item_end - item)});
    slot = slot_end;
    item = item_end;
  }
  TANDEM_CHECK(item == items.size(), "{} of {} commands of a pipeline's pass are in no slot",
               items.size() - item, items.size());
  return list;
}

bool is_of_one_chunk(const Stretch& stretch) {
  return std::all_of(stretch.slots.begin(), stretch.slots.end(), [&](const PipelineSlot& slot) {
    return slot.chunk_on_rank == stretch.slots[0].chunk_on_rank;
  });
}

// Items of a slot by direction and chunk: they are as many in every pass.
std::map<std::pair<bool, int>, size_t> slot_sizes(const std::vector<Stretch>& list) {
  std::map<std::pair<bool, int>, size_t> sizes;
  for (const Stretch& stretch : list) {
    if (!is_of_one_chunk(stretch)) continue;
    sizes[{stretch.slots[0].forward, stretch.slots[0].chunk_on_rank}] =
        stretch.items.size() / stretch.slots.size();
  }
  return sizes;
}

}  // namespace

std::vector<ChunkItems> cut_slots(const std::vector<Item>& items, std::span<const PipelineSlot> order,
                                  int chunks) {
  const std::vector<Stretch> list = stretches(items, order);
  const std::map<std::pair<bool, int>, size_t> sizes = slot_sizes(list);
  std::vector<ChunkItems> cut(static_cast<size_t>(chunks));
  size_t seen = 0;
  for (const Stretch& stretch : list) {
    size_t at = 0;
    for (const PipelineSlot& slot : stretch.slots) {
      const auto size = sizes.find({slot.forward, slot.chunk_on_rank});
      TANDEM_CHECK(size != sizes.end() && at + size->second <= stretch.items.size(),
                   "the slots of a pipeline's pass differ");
      ChunkItems& chunk = cut[static_cast<size_t>(slot.chunk_on_rank)];
      std::vector<Item>& kept = slot.forward ? chunk.forward : chunk.backward;
      // Those in the middle of the step: the pipeline is full there.
      if (kept.empty() || 3 * seen <= 2 * order.size())
        kept.assign(stretch.items.begin() + static_cast<long>(at),
                    stretch.items.begin() + static_cast<long>(at + size->second));
      at += size->second;
      ++seen;
    }
    TANDEM_CHECK(at == stretch.items.size(), "the slots of a pipeline's pass differ");
  }
  return cut;
}

void move_stage(std::vector<ChunkItems>& chunks, int by) {
  for (ChunkItems& chunk : chunks) {
    for (std::vector<Item>* items : {&chunk.forward, &chunk.backward}) {
      for (Item& item : *items) {
        if (item.kind == Kind::Send || item.kind == Kind::Recv) item.peer += by;
      }
    }
  }
}

Program in_order(const std::vector<ChunkItems>& chunks, std::span<const PipelineSlot> order) {
  Program program;
  program.reserve(order.size());
  for (const PipelineSlot& slot : order) {
    const ChunkItems& chunk = chunks[static_cast<size_t>(slot.chunk_on_rank)];
    program.push_back({slot.forward ? &chunk.forward : &chunk.backward, 1, /*joins=*/false});
  }
  program.back().joins = true;
  return program;
}

int64_t passes_to_compile(PipelineSchedule schedule, int stages, int64_t passes) {
  if (stages == 1 || schedule == PipelineSchedule::GPipe) return passes;  // which keeps all of them
  // Chunks that take turns need another round until each pass finds the memory as the one before it did.
  const int rounds = schedule == PipelineSchedule::Interleaved ? 3 : 2;
  return std::min<int64_t>(passes, static_cast<int64_t>(rounds) * stages);
}

std::vector<int> alike_stages(int num_blocks, int stages, int chunks) {
  std::map<std::vector<int>, int> first;
  std::vector<int> alike;
  const std::vector<int> chunk_of = chunk_of_blocks(num_blocks, stages * chunks);
  for (int stage = 0; stage < stages; ++stage) {
    std::vector<int> blocks;
    for (int chunk = stage; chunk < stages * chunks; chunk += stages)
      blocks.push_back(static_cast<int>(std::count(chunk_of.begin(), chunk_of.end(), chunk)));
    const bool at_an_end = stage == 0 || stage + 1 == stages;
    alike.push_back(at_an_end ? stage : first.try_emplace(blocks, stage).first->second);
  }
  return alike;
}

}  // namespace tandem::plan
