// Forward. A task is a (batch, key head, chunk of queries): it packs the keys, transposed, and the values it
// needs once, then for each query head of the group and each block of 64 queries walks the keys in blocks
// of 256, keeping a running maximum and sum for every query (the online softmax). Blocks before the window of
// all queries, or of other segments, are passed over.
#include "tandem/kernels/cpu/attention/attention.h"

#include <cmath>
#include <limits>

#include "tandem/base/error.h"
#include "tandem/kernels/cpu/attention/attention_prefetch.h"
#include "tandem/kernels/cpu/attention/cached_attention.h"
#include "tandem/kernels/cpu/register.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tandem/kernels/cpu/attention/attention.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "tandem/kernels/cpu/attention/attention_pack-inl.h"
#include "tandem/kernels/cpu/attention/attention_scores-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {
namespace attention {

// The running softmax of one block of queries.
struct RunningSoftmax {
  alignas(64) float max[kQueryBlock];
  alignas(64) float sum[kQueryBlock];
  alignas(64) float shrink[kQueryBlock];  // what earlier sums are multiplied by when the maximum grows
};

// Takes the maxima of what each query sees into account.
HWY_ATTR void raise_maxima(const ScoreBlock& block, const float* scores, RunningSoftmax& state) {
  const FloatTag d;
  const auto lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  alignas(64) float maxima[kQueryBlock];
  for (int64_t i = 0; i < block.queries; ++i) {
    const float* row = scores + i * kScoreStride;
    auto top = lowest;
    for_columns(
        block, i, [&](int64_t j) { top = hn::Max(top, hn::Load(d, row + j)); },
        [&](int64_t j, ScoreMask in_reach) {
          top = hn::Max(top, hn::IfThenElse(in_reach, hn::Load(d, row + j), lowest));
        });
    maxima[i] = std::max(state.max[i], hn::GetLane(hn::MaxOfLanes(d, top)));
  }
  for (int64_t i = block.queries; i < kQueryBlock; ++i) maxima[i] = 0.0f;
  for (int64_t i = 0; i < kQueryBlock; i += kLanes) {
    const auto now = hn::Load(d, maxima + i);
    const auto shrink = fast_exp(d, hn::Sub(hn::Load(d, state.max + i), now));
    hn::Store(shrink, d, state.shrink + i);
    hn::Store(hn::Mul(hn::Load(d, state.sum + i), shrink), d, state.sum + i);
    hn::Store(now, d, state.max + i);
  }
}

// scores = exp(scores - max), or 0 beyond a query's reach; adds them up. The mask comes last: exp(-inf) would
// pass through subnormal numbers, which are slow on some CPUs.
HWY_ATTR void exponentiate(const ScoreBlock& block, const RowPrefetch& upcoming, float* scores,
                           RunningSoftmax& state) {
  const FloatTag d;
  for (int64_t i = 0; i < block.queries; ++i) {
    upcoming.fetch(i);
    float* row = scores + i * kScoreStride;
    const auto top = hn::Set(d, state.max[i]);
    auto sum = hn::Zero(d);
    for_columns(
        block, i,
        [&](int64_t j) {
          const auto p = fast_exp(d, hn::Sub(hn::Load(d, row + j), top));
          hn::Store(p, d, row + j);
          sum = hn::Add(sum, p);
        },
        [&](int64_t j, ScoreMask in_reach) {
          const auto p = hn::IfThenElseZero(in_reach, fast_exp(d, hn::Sub(hn::Load(d, row + j), top)));
          hn::Store(p, d, row + j);
          sum = hn::Add(sum, p);
        });
    state.sum[i] += hn::GetLane(hn::SumOfLanes(d, sum));
  }
}

HWY_ATTR void shrink_rows(const RunningSoftmax& state, int64_t rows, int64_t width, int64_t ld,
                          float* values) {
  const FloatTag d;
  for (int64_t i = 0; i < rows; ++i, values += ld) {
    const auto shrink = hn::Set(d, state.shrink[i]);
    for (int64_t j = 0; j < width; j += kLanes) {
      hn::Store(hn::Mul(hn::Load(d, values + j), shrink), d, values + j);
    }
  }
}

template <typename S>
HWY_ATTR void forward_task(const AttentionShape& shape, int64_t task, const S* qkv, Segments segments, S* out,
                           float* lse, float* scratch) {
  const int64_t chunks = (shape.tokens + kQueryChunk - 1) / kQueryChunk;
  const int64_t chunk = task % chunks;
  const int64_t kv_head = task / chunks % shape.kv_heads;
  const int64_t batch = task / chunks / shape.kv_heads;
  const int64_t begin = chunk * kQueryChunk;
  const int64_t end = std::min(shape.tokens, begin + kQueryChunk);
  const int64_t num_keys = shape.end_key(end - 1);
  const int64_t width = shape.head_dim;
  const int64_t ld = shape.head_stride();
  const int64_t stride = shape.qkv_stride();
  const S* tokens = qkv + batch * shape.tokens * stride;
  if (segments != nullptr) segments += batch * shape.tokens;

  float* keys = scratch;  // transposed
  float* values = keys + shape.transposed_elems();
  float* queries = values + shape.rows_elems();
  float* scores = queries + shape.query_elems();
  float* sums = scores + kScoreElems;
  const S* key_src = tokens + shape.key_offset(kv_head);
  const S* value_src = tokens + shape.value_offset(kv_head);

  // Keys and values packed so far, from the first that any query sees on: as many as one yet has seen.
  int64_t packed = shape.first_key(begin) / kKeyBlock * kKeyBlock;
  RunningSoftmax state;
  RowPrefetch upcoming;
  for (int64_t head = kv_head * shape.group(); head < (kv_head + 1) * shape.group(); ++head) {
    for (int64_t first = begin; first < end; first += kQueryBlock) {
      const int64_t num_queries = std::min(kQueryBlock, end - first);
      pack_rows(tokens + first * stride + head * width, stride, num_queries, kQueryBlock, width, shape.scale,
                queries, ld);
      const int64_t seen = shape.end_key(first + num_queries - 1);
      if (packed < seen) {
        pack_transposed(key_src, stride, packed, seen, width, keys);
        pack_rows(value_src + packed * stride, stride, seen - packed, seen - packed, width, 1.0f,
                  values + packed * ld, ld);
        packed = seen;
      }
      S* out_rows = out + (batch * shape.tokens + first) * shape.out_stride() + head * width;
      upcoming.add(out_rows, shape.out_stride(), width);
      if (const int64_t next = first + kQueryBlock; next + kQueryBlock <= end) {
        upcoming.add(tokens + next * stride + head * width, stride, width);
        if (packed < num_keys) upcoming.add(key_src + next * stride, stride, width);
        if (packed < num_keys) upcoming.add(value_src + next * stride, stride, width);
      }

      std::fill_n(state.max, kQueryBlock, kUnseen);
      std::fill_n(state.sum, kQueryBlock, 0.0f);
      bool started = false;
      for (int64_t key = shape.first_key(first) / kKeyBlock * kKeyBlock; key < seen; key += kKeyBlock) {
        const ScoreBlock block = score_block(shape, first, num_queries, key, seen);
        if (!may_see(block, segments, first, key)) continue;
        score_product(block, width, queries, ld, keys + key / kKeyBlock * width * kScoreStride, scores);
        shape_scores(shape, block, segments, first, key, scores);
        raise_maxima(block, scores, state);
        exponentiate(block, upcoming, scores, state);
        upcoming.clear();
        if (started) shrink_rows(state, num_queries, width, ld, sums);
        query_product(block, width, scores, values + key * ld, sums, ld, started);
        started = true;
      }
      float* lse_row = lse + (batch * shape.heads + head) * shape.tokens + first;
      for (int64_t i = 0; i < num_queries; ++i) {
        unpack_rows(sums + i * ld, ld, 1, width, 1.0f / state.sum[i], out_rows + i * shape.out_stride(), 0);
        lse_row[i] = state.max[i] + std::log(state.sum[i]);
      }
    }
  }
}

}  // namespace attention

void attention_forward_task(const cpu::attention::AttentionShape& shape, int64_t task, const KernelArgs& args,
                            float* scratch) {
  const auto run_task = [&]<typename S>(S*) {
    attention::forward_task(shape, task, static_cast<const S*>(args.in[0].data),
                            shape.segmented ? args.in[1].as<const int32_t>() : nullptr,
                            static_cast<S*>(args.out[0].data), args.out[1].as<float>(), scratch);
  };
  switch (args.in[0].type.dtype) {
    case DType::BF16: return run_task(static_cast<BFloat16*>(nullptr));
    case DType::F16: return run_task(static_cast<Half*>(nullptr));
    default: return run_task(static_cast<float*>(nullptr));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem {
HWY_EXPORT(attention_forward_task);

namespace cpu {
namespace {

using attention::AttentionShape;

int64_t scratch_elems(const AttentionShape& shape) {
  return shape.transposed_elems() + shape.rows_elems() + 2 * shape.query_elems() + attention::kScoreElems;
}

bool supports(const CallSignature& call) { return attention::fast_attention_type(call.in[0], *call.attrs); }

size_t workspace(const CallSignature& call, int num_threads) {
  const AttentionShape shape = attention::attention_shape(call.in[0], *call.attrs);
  return static_cast<size_t>(scratch_elems(shape) * num_threads) * sizeof(float);
}

void run(const KernelArgs& args, Stream& stream) {
  const AttentionShape shape = attention::attention_shape(args.in[0].type, args.attrs);
  const int64_t chunks = (shape.tokens + attention::kQueryChunk - 1) / attention::kQueryChunk;
  const int64_t scratch = scratch_elems(shape);
  TANDEM_CHECK(args.workspace.size() >=
               static_cast<size_t>(scratch * stream.pool().num_threads()) * sizeof(float));
  float* workspace = reinterpret_cast<float*>(args.workspace.data());
  const auto forward_task = HWY_DYNAMIC_DISPATCH(attention_forward_task);
  stream.pool().parallel_for(shape.batch * shape.kv_heads * chunks, [&](int64_t task, int worker) {
    forward_task(shape, task, args, workspace + worker * scratch);
  });
}

}  // namespace

void add_attention_kernels(KernelRegistry& registry) {
  registry.add({"cpu.attention", Op::Attention, supports, workspace, run});
  attention::add_grad_kernel(registry);
  attention::add_rope_kernels(registry);
  attention::add_cached_kernel(registry);
}

}  // namespace cpu
}  // namespace tandem
#endif
