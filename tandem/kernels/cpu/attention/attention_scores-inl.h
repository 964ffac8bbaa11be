// Blocks of scores between their product and their softmax: which of their columns a row goes over, and what
// a cap and segments make of them.
#if defined(TANDEM_KERNELS_CPU_ATTENTION_SCORES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_KERNELS_CPU_ATTENTION_SCORES_INL_H_
#undef TANDEM_KERNELS_CPU_ATTENTION_SCORES_INL_H_
#else
#define TANDEM_KERNELS_CPU_ATTENTION_SCORES_INL_H_
#endif

#include "tandem/kernels/cpu/attention/attention_tile-inl.h"
#include "tandem/kernels/cpu/pointwise/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {
namespace attention {

// The score of what is not seen, and the maximum of nothing. Finite, so that the difference of two is a
// number; exp of it less any score is 0.
inline constexpr float kUnseen = -1e30f;

using ScoreMask = hn::Mask<FloatTag>;

// body(column, mask) over the vectors of a row that products read: whole(column) where the query sees all of
// them, edge(column, mask) where it sees what the mask says.
template <typename Whole, typename Edge>
HWY_INLINE void for_columns(const ScoreBlock& block, int64_t query, const Whole& whole, const Edge& edge) {
  const FloatTag d;
  const int64_t tile_row = query / kTileRows * kTileRows;
  const int64_t begin = block.begin(query), seen = block.seen(query), end = block.columns(tile_row);
  const auto masked = [&](int64_t j) {
    const auto before_end = hn::FirstN(d, static_cast<size_t>(std::max<int64_t>(0, seen - j)));
    if (begin <= j) return edge(j, before_end);
    const auto before_begin = hn::FirstN(d, static_cast<size_t>(begin - j));
    edge(j, hn::AndNot(before_begin, before_end));
  };
  int64_t j = block.first_column(tile_row);
  for (; j < begin && j < end; j += kLanes) masked(j);
  for (; j + kLanes <= seen; j += kLanes) whole(j);
  for (; j < end; j += kLanes) masked(j);
}

// Scores become cap tanh(score / cap).
HWY_ATTR inline void cap_scores(const ScoreBlock& block, float cap, float* scores) {
  const FloatTag d;
  const auto limit = hn::Set(d, cap);
  for (int64_t i = 0; i < block.queries; ++i) {
    float* row = scores + i * kScoreStride;
    const auto bend = [&](int64_t j) {
      hn::Store(hn::Mul(limit, fast_tanh(d, hn::Div(hn::Load(d, row + j), limit))), d, row + j);
    };
    for_columns(block, i, bend, [&](int64_t j, ScoreMask) { bend(j); });
  }
}

// Which segment each token of a sequence belongs to; null where all see one another.
using Segments = const int32_t*;

struct SegmentRange {
  int32_t low, high;

  SegmentRange(Segments first, int64_t count)
      : low(*std::min_element(first, first + count)), high(*std::max_element(first, first + count)) {}
  bool meets(const SegmentRange& other) const { return low <= other.high && other.low <= high; }
};

// Scores of keys of other segments become kUnseen. `queries` and `keys` are the block's.
HWY_ATTR inline void mask_segments(const ScoreBlock& block, Segments queries, Segments keys, float* scores) {
  for (int64_t i = 0; i < block.queries; ++i) {
    float* row = scores + i * kScoreStride;
    for (int64_t j = block.begin(i); j < block.seen(i); ++j)
      row[j] = keys[j] == queries[i] ? row[j] : kUnseen;
  }
}

// A block of queries first .. first + num_queries and keys from `key` on, of which `end` is the end.
HWY_INLINE ScoreBlock score_block(const AttentionShape& shape, int64_t first, int64_t num_queries,
                                  int64_t key, int64_t end) {
  const bool windowed = shape.causal && shape.window < shape.tokens;
  return {num_queries, std::min(kKeyBlock, end - key), shape.causal ? first - key : kKeyBlock,
          windowed ? first - shape.window + 1 - key : -kQueryBlock};
}

// Whether queries of a block may see any key of it, as far as segments say.
HWY_INLINE bool may_see(const ScoreBlock& block, Segments segments, int64_t first, int64_t key) {
  if (segments == nullptr) return true;
  return SegmentRange(segments + first, block.queries).meets(SegmentRange(segments + key, block.keys));
}

// What follows the product of queries and keys.
HWY_INLINE void shape_scores(const AttentionShape& shape, const ScoreBlock& block, Segments segments,
                             int64_t first, int64_t key, float* scores) {
  if (shape.softcap != 0) cap_scores(block, shape.softcap, scores);
  if (segments != nullptr) mask_segments(block, segments + first, segments + key, scores);
}

}  // namespace attention
}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#endif
