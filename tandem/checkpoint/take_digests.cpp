#include "tandem/checkpoint/take_digests.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "tandem/base/thread_pool.h"
#include "tandem/checkpoint/joined.h"
#include "tandem/checkpoint/running_digest.h"

namespace tandem {

std::span<std::byte> staged_at(const TensorView& view, const Shard& shard, std::span<std::byte> staging) {
  if (staging.empty()) return {};
  const auto dst = staging.subspan(static_cast<size_t>(shard.offset), static_cast<size_t>(shard.bytes));
  return dst.data() == view.bytes.data() ? std::span<std::byte>{} : dst;
}

void take_digests(std::span<const TensorView> views, std::span<const ShardPlace> places,
                  std::span<std::byte> staging, Part& part, ThreadPool* pool) {
  std::vector<size_t> order(views.size());  // largest first, so that no thread starts a big one last
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return views[a].num_bytes() > views[b].num_bytes(); });
  const auto take = [&](int64_t task, int /*worker*/) {
    const size_t index = order[static_cast<size_t>(task)];
    const TensorView& view = views[index];
    TensorEntry& entry = part.tensors[places[index].tensor];
    Shard& shard = entry.shards[places[index].shard];
    const auto dst = staged_at(view, shard, staging);
    shard.digests = view.in_halves() ? digest_and_join(view.bytes, view.low, dst, part.digest_block)
                                     : digest_and_copy(view.bytes, dst, part.digest_block);
    if (shard.box == whole_box(entry.shape)) entry.digest = combine_digests(shard.digests);
  };
  const auto num_tasks = static_cast<int64_t>(views.size());
  if (pool != nullptr) {
    pool->parallel_for(num_tasks, take);
  } else {
    for (int64_t task = 0; task < num_tasks; ++task) take(task, 0);
  }
}

}  // namespace tandem
