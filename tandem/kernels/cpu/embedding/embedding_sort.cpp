#include "tandem/kernels/cpu/embedding/embedding_sort.h"

#include <algorithm>
#include <array>
#include <utility>

#include "tandem/base/error.h"

namespace tandem::cpu {
namespace {

IdRun run_at(std::span<const IdRow> sorted, int64_t begin, int64_t limit) {
  if (begin >= limit) return {{}, begin, limit};
  int64_t end = begin + 1;
  while (end < std::ssize(sorted) &&
         sorted[static_cast<size_t>(end)].id == sorted[static_cast<size_t>(begin)].id)
    ++end;
  return {sorted.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)), end, limit};
}

}  // namespace

IdRange checked_range(const TensorArg& ids, const TensorArg& table, const Attrs& attrs) {
  const IdRange range{attrs.integer_or("first", 0), attrs.integer_or("valid", table.type.shape[0])};
  const int32_t* id = ids.as<int32_t>();
  int32_t low = 0, high = 0;
  for (int64_t i = 0; i < ids.elems(); ++i) {
    low = std::min(low, id[i]);
    high = std::max(high, id[i]);
  }
  TANDEM_CHECK(low >= 0 && (attrs.has("first") || high < range.size),
               "token ids from {} to {} with a vocabulary of {}", low, high, range.size);
  return range;
}

size_t sort_workspace(int64_t num_ids) { return 2 * static_cast<size_t>(num_ids) * sizeof(IdRow); }

// Least significant byte first: as many passes as the vocabulary has bytes, each of them stable.
std::span<const IdRow> sort_by_id(const TensorArg& ids, IdRange range, std::span<std::byte> workspace) {
  IdRow* from = reinterpret_cast<IdRow*>(workspace.data());
  IdRow* to = from + ids.elems();
  size_t n = 0;
  for (int64_t i = 0; i < ids.elems(); ++i) {
    const int32_t id = ids.as<int32_t>()[i];
    if (range.contains(id)) from[n++] = {static_cast<int32_t>(id - range.first), static_cast<int32_t>(i)};
  }
  for (int shift = 0; shift < 32 && (range.size - 1) >> shift != 0; shift += 8) {
    const auto digit = [shift](IdRow item) { return static_cast<size_t>(item.id >> shift & 0xff); };
    std::array<uint32_t, 257> next{};
    for (size_t i = 0; i < n; ++i) ++next[digit(from[i]) + 1];
    for (size_t k = 1; k < next.size(); ++k) next[k] += next[k - 1];
    for (size_t i = 0; i < n; ++i) to[next[digit(from[i])]++] = from[i];
    std::swap(from, to);
  }
  return {from, n};
}

IdRun first_run(std::span<const IdRow> sorted, int64_t begin, int64_t size) {
  const int64_t limit = std::min(std::ssize(sorted), begin + size);
  int64_t first = begin;
  while (first > 0 && first < limit &&
         sorted[static_cast<size_t>(first)].id == sorted[static_cast<size_t>(first - 1)].id)
    ++first;
  return run_at(sorted, first, limit);
}

IdRun next_run(std::span<const IdRow> sorted, const IdRun& run) { return run_at(sorted, run.end, run.limit); }

}  // namespace tandem::cpu
