// Attention of new tokens over a cache. The new keys and values are put into the cache first. Then a task is
// a (batch, key head, tile of queries, block of positions): it reads each key and value of its block once for
// all of its queries, and leaves a maximum, a sum of exponentials and a sum of values for each. These are put
// together in the order of positions. Which queries and positions a task has follows from shapes and the
// position alone.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "tandem/base/error.h"
#include "tandem/kernels/cpu/attention/cached_attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tandem/kernels/cpu/attention/cached_attention.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "tandem/kernels/cpu/attention/attention_pack-inl.h"
#include "tandem/kernels/cpu/pointwise/exp-inl.h"
#include "tandem/kernels/cpu/pointwise/pointwise-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {
namespace cached {
using namespace cpu::attention;

// Walks the slots of neighbouring positions.
struct Slots {
  int64_t slot, slots;

  Slots(int64_t position, int64_t count) : slot(position % count), slots(count) {}
  HWY_INLINE int64_t next() {
    const int64_t now = slot;
    if (++slot == slots) slot = 0;
    return now;
  }
};

// scores[q][j] = queries[q] . keys[begin + j]
template <int kQueries, typename S>
HWY_ATTR void score_keys(const CachedAttention& call, const S* keys, Positions block, const float* queries,
                         float* scores) {
  const FloatTag d;
  const auto width = static_cast<size_t>(call.head_dim);
  Slots slots(block.begin, call.slots);
  for (int64_t j = 0; j < block.size(); ++j) {
    const S* key = keys + slots.next() * call.head_dim;
    FloatVec sums[kQueries];
    for (int q = 0; q < kQueries; ++q) sums[q] = hn::Zero(d);
    for_each_vector(width, [&](size_t i, auto part) {
      const auto k = load_float(d, key + i, part);
      const float* query = queries + i;
      for (int q = 0; q < kQueries; ++q, query += call.query_stride())
        sums[q] = hn::MulAdd(k, hn::Load(d, query), sums[q]);
    });
    for (int q = 0; q < kQueries; ++q) scores[q * call.block() + j] = hn::GetLane(hn::SumOfLanes(d, sums[q]));
  }
}

// Columns [begin, end) of a row of scores become exp(score - their maximum), the others 0.
HWY_ATTR void exponentiate(const CachedAttention& call, Positions seen, int64_t columns, float* scores,
                           float* largest, float* sum) {
  const FloatTag d;
  *largest = kNothingSeen;
  *sum = 0;
  if (seen.size() <= 0) {
    std::fill(scores, scores + columns, 0.0f);
    return;
  }
  float* first = scores + seen.begin;
  const auto count = static_cast<size_t>(seen.size());
  auto top = hn::Set(d, kNothingSeen);
  for_each_vector(count, [&](size_t i, auto part) {
    auto score = load_float(d, first + i, part);
    if (call.softcap != 0) {
      const auto cap = hn::Set(d, call.softcap);
      score = hn::Mul(cap, fast_tanh(d, hn::Div(score, cap)));
      store_float(d, score, first + i, part);
    }
    top = hn::Max(top, lowered(d, score, part));
  });
  top = hn::MaxOfLanes(d, top);
  *largest = hn::GetLane(top);
  auto total = hn::Zero(d);
  for_each_vector(count, [&](size_t i, auto part) {
    const auto p = keep_real(d, fast_exp(d, hn::Sub(load_float(d, first + i, part), top)), part);
    store_float(d, p, first + i, part);
    total = hn::Add(total, p);
  });
  *sum = hn::GetLane(hn::SumOfLanes(d, total));
  std::fill(scores, first, 0.0f);
  std::fill(first + count, scores + columns, 0.0f);
}

// mixed[q] = sum over j of scores[q][j] values[begin + j]
template <int kQueries, typename S>
HWY_ATTR void mix_values(const CachedAttention& call, const S* values, Positions block, const float* scores,
                         float* partials) {
  const FloatTag d;
  for_each_vector(static_cast<size_t>(call.head_dim), [&](size_t i, auto part) {
    FloatVec sums[kQueries];
    for (int q = 0; q < kQueries; ++q) sums[q] = hn::Zero(d);
    Slots slots(block.begin, call.slots);
    for (int64_t j = 0; j < block.size(); ++j) {
      const auto value = load_float(d, values + slots.next() * call.head_dim + static_cast<int64_t>(i), part);
      for (int q = 0; q < kQueries; ++q)
        sums[q] = hn::MulAdd(hn::Set(d, scores[q * call.block() + j]), value, sums[q]);
    }
    for (int q = 0; q < kQueries; ++q) hn::Store(sums[q], d, partials + q * call.partial_stride() + i);
  });
}

template <int kQueries, typename S>
HWY_ATTR void attend(const CachedAttention& call, const S* keys, const S* values, int64_t first_query,
                     Positions block, const float* queries, float* scores, float* partials) {
  score_keys<kQueries>(call, keys, block, queries, scores);
  for (int q = 0; q < kQueries; ++q) {
    const Positions seen = call.seen_by(std::min(first_query + q, call.num_queries() - 1));
    float* const stats = partials + q * call.partial_stride() + call.query_stride();
    exponentiate(
        call, {std::max(seen.begin, block.begin) - block.begin, std::min(seen.end, block.end) - block.begin},
        block.size(), scores + q * call.block(), stats, stats + 1);
  }
  mix_values<kQueries>(call, values, block, scores, partials);
}

template <typename S>
HWY_ATTR void run_task(const CachedAttention& call, int64_t task, const KernelArgs& args, float* scratch,
                       float* partials) {
  const int64_t split = task % call.splits, tile = task / call.splits % call.tiles();
  const int64_t kv_head = task / call.splits / call.tiles() % call.kv_heads;
  const int64_t batch = task / call.splits / call.tiles() / call.kv_heads;
  const int64_t first = tile * kQueryTile, count = std::min(kQueryTile, call.num_queries() - first);
  const Positions all = call.seen_by_all();
  Positions block{all.begin + split * call.block(), 0};
  block.end = std::min(all.end, block.begin + call.block());
  // What no query of the tile sees need not be read.
  block.begin = std::max(block.begin, call.seen_by(first).begin);
  block.end = std::min(block.end, call.seen_by(first + count - 1).end);
  float* const mine = partials + task * kQueryTile * call.partial_stride();
  if (block.size() <= 0) {
    for (int64_t q = 0; q < count; ++q) {
      float* const stats = mine + q * call.partial_stride() + call.query_stride();
      stats[0] = kNothingSeen;
      stats[1] = 0;
    }
    return;
  }
  float* const queries = scratch;
  float* const scores = scratch + kQueryTile * call.query_stride();
  const S* qkv = args.in[0].as<S>() + batch * call.rows * call.qkv_stride();
  for (int64_t q = 0; q < count; ++q) {
    const int64_t row = (first + q) / call.group(),
                  head = kv_head * call.group() + (first + q) % call.group();
    attention::pack_rows(qkv + row * call.qkv_stride() + head * call.head_dim, 0, 1, 1, call.head_dim,
                         call.scale, queries + q * call.query_stride(), call.query_stride());
  }
  const int64_t padded = count <= 1 ? 1 : count <= 2 ? 2 : count <= 4 ? 4 : kQueryTile;
  std::fill(queries + count * call.query_stride(), queries + padded * call.query_stride(), 0.0f);
  const int64_t cache = (batch * call.kv_heads + kv_head) * call.slots * call.head_dim;
  const S *keys = args.out[1].as<S>() + cache, *values = args.out[2].as<S>() + cache;
  switch (padded) {
    case 1: return attend<1>(call, keys, values, first, block, queries, scores, mine);
    case 2: return attend<2>(call, keys, values, first, block, queries, scores, mine);
    case 4: return attend<4>(call, keys, values, first, block, queries, scores, mine);
    default: return attend<8>(call, keys, values, first, block, queries, scores, mine);
  }
}

// The parts of one query, in the order of positions.
template <typename S>
HWY_ATTR void join(const CachedAttention& call, const float* partials, int64_t step, S* out) {
  const FloatTag d;
  float largest = kNothingSeen, sum = 0;
  for (int64_t split = 0; split < call.splits; ++split)
    largest = std::max(largest, partials[split * step + call.query_stride()]);
  float weights[kMaxBlocks];
  for (int64_t split = 0; split < call.splits; ++split) {
    const float* stats = partials + split * step + call.query_stride();
    weights[split] = stats[1] == 0 ? 0 : std::exp(stats[0] - largest);
    sum += weights[split] * stats[1];
  }
  const auto inverse = hn::Set(d, 1 / sum);
  for_each_vector(static_cast<size_t>(call.head_dim), [&](size_t i, auto part) {
    auto mixed = hn::Zero(d);
    for (int64_t split = 0; split < call.splits; ++split) {
      if (weights[split] == 0) continue;
      mixed = hn::MulAdd(hn::Set(d, weights[split]), hn::Load(d, partials + split * step + i), mixed);
    }
    store_float(d, hn::Mul(mixed, inverse), out + i, part);
  });
}

template <typename S>
HWY_ATTR void join_all(const CachedAttention& call, const KernelArgs& args, const float* partials) {
  const int64_t step = kQueryTile * call.partial_stride();
  for (int64_t i = 0; i < call.batch * call.kv_heads * call.num_queries(); ++i) {
    const int64_t query = i % call.num_queries(), kv_head = i / call.num_queries() % call.kv_heads;
    const int64_t batch = i / call.num_queries() / call.kv_heads;
    const int64_t tile = (batch * call.kv_heads + kv_head) * call.tiles() + query / kQueryTile;
    const int64_t row = batch * call.rows + query / call.group();
    const int64_t head = kv_head * call.group() + query % call.group();
    join(call, partials + tile * call.splits * step + query % kQueryTile * call.partial_stride(), step,
         args.out[0].as<S>() + (row * call.heads + head) * call.head_dim);
  }
}

}  // namespace cached

void cached_attention_task(const cpu::attention::CachedAttention& call, int64_t task, const KernelArgs& args,
                           float* scratch, float* partials) {
  switch (args.in[0].type.dtype) {
    case DType::BF16: return cached::run_task<BFloat16>(call, task, args, scratch, partials);
    case DType::F16: return cached::run_task<Half>(call, task, args, scratch, partials);
    default: return cached::run_task<float>(call, task, args, scratch, partials);
  }
}

void cached_attention_join(const cpu::attention::CachedAttention& call, const KernelArgs& args,
                           const float* partials) {
  switch (args.in[0].type.dtype) {
    case DType::BF16: return cached::join_all<BFloat16>(call, args, partials);
    case DType::F16: return cached::join_all<Half>(call, args, partials);
    default: return cached::join_all<float>(call, args, partials);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem {
HWY_EXPORT(cached_attention_task);
HWY_EXPORT(cached_attention_join);

namespace cpu::attention {
namespace {

CachedAttention cached_attention(const TensorType& qkv, const TensorType& keys, const Attrs& attrs) {
  CachedAttention call;
  call.batch = qkv.shape[0];
  call.rows = qkv.shape[1];
  call.heads = attrs.integer("heads");
  call.kv_heads = attrs.integer("kv_heads");
  call.slots = keys.shape[2];
  call.head_dim = keys.shape[3];
  call.window = attrs.integer_or("window", 0);
  call.scale =
      static_cast<float>(attrs.real_or("scale", 1.0 / std::sqrt(static_cast<double>(call.head_dim))));
  call.softcap = static_cast<float>(attrs.real_or("softcap", 0));
  call.real = call.rows;
  call.splits = call.num_blocks(call.slots);  // the most there can be
  return call;
}

bool supports(const CallSignature& call) { return fast_attention_type(call.in[0], *call.attrs); }

size_t workspace(const CallSignature& signature, int num_threads) {
  const CachedAttention call = cached_attention(signature.in[0], signature.in[1], *signature.attrs);
  return static_cast<size_t>(call.scratch_elems() * num_threads + call.partial_elems()) * sizeof(float);
}

// Moves the keys and values of the new rows to their slots.
void append(const CachedAttention& call, const KernelArgs& args) {
  const auto row_bytes = static_cast<size_t>(call.head_dim * dtype_bytes(args.in[0].type.dtype));
  for (int64_t i = 0; i < call.batch * call.real * call.kv_heads; ++i) {
    const int64_t kv_head = i % call.kv_heads, row = i / call.kv_heads % call.real;
    const int64_t batch = i / call.kv_heads / call.real;
    const auto packed = static_cast<size_t>((batch * call.rows + row) * (call.heads + 2 * call.kv_heads));
    const auto slot =
        static_cast<size_t>((batch * call.kv_heads + kv_head) * call.slots + (call.first + row) % call.slots);
    const auto* from = args.in[0].as<const std::byte>();
    const auto key = static_cast<size_t>(call.heads + kv_head);
    const size_t value = key + static_cast<size_t>(call.kv_heads);
    std::memcpy(args.out[1].as<std::byte>() + slot * row_bytes, from + (packed + key) * row_bytes, row_bytes);
    std::memcpy(args.out[2].as<std::byte>() + slot * row_bytes, from + (packed + value) * row_bytes,
                row_bytes);
  }
}

// Rows that are not real come out as zeros.
void clear_unreal(const CachedAttention& call, const KernelArgs& args) {
  const auto row_bytes =
      static_cast<size_t>(call.heads * call.head_dim * dtype_bytes(args.out[0].type.dtype));
  for (int64_t batch = 0; batch < call.batch; ++batch) {
    std::memset(args.out[0].as<std::byte>() + static_cast<size_t>(batch * call.rows + call.real) * row_bytes,
                0, static_cast<size_t>(call.rows - call.real) * row_bytes);
  }
}

void run(const KernelArgs& args, Stream& stream) {
  CachedAttention call = cached_attention(args.in[0].type, args.in[1].type, args.attrs);
  call.first = args.in[3].as<int32_t>()[0];
  call.real = args.in[3].as<int32_t>()[1];
  const Positions all = call.seen_by_all();
  TANDEM_CHECK(call.first >= 0 && call.real >= 1 && call.real <= call.rows && all.size() <= call.slots,
               "{} rows from position {} on, in a cache of {}", call.real, call.first, call.slots);
  call.splits = call.num_blocks(all.size());
  append(call, args);
  float* const scratch = reinterpret_cast<float*>(args.workspace.data());
  float* const partials = scratch + call.scratch_elems() * stream.pool().num_threads();
  const auto task = HWY_DYNAMIC_DISPATCH(cached_attention_task);
  stream.pool().parallel_for(
      call.batch * call.kv_heads * call.tiles() * call.splits,
      [&](int64_t i, int worker) { task(call, i, args, scratch + worker * call.scratch_elems(), partials); });
  HWY_DYNAMIC_DISPATCH(cached_attention_join)(call, args, partials);
  clear_unreal(call, args);
}

}  // namespace

void add_cached_kernel(KernelRegistry& registry) {
  registry.add({"cpu.cached_attention", Op::CachedAttention, supports, workspace, run});
}

}  // namespace cpu::attention
}  // namespace tandem
#endif
