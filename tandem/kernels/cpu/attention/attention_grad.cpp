// Backward. A task is a (batch, key head): it alone sums that head's key and value gradients, over its query
// heads and blocks of queries in order, so no sum depends on the thread count. Probabilities are recomputed
// block by block from the saved log-sum-exp: p = exp(s - lse), ds = p (dp - delta), delta = dout . out; a cap
// multiplies ds by its slope 1 - (s / cap)^2.
#include "tandem/kernels/cpu/attention/attention.h"

#include "tandem/base/error.h"
#include "tandem/kernels/cpu/attention/attention_prefetch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tandem/kernels/cpu/attention/attention_grad.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "tandem/kernels/cpu/attention/attention_pack-inl.h"
#include "tandem/kernels/cpu/attention/attention_scores-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {
namespace attention {

// delta[i] = sum over the head of dout * out, dout already in scratch.
template <typename S>
HWY_ATTR void row_dots(const float* dout, int64_t ld, const S* out, int64_t out_stride, int64_t rows,
                       int64_t width, float* delta) {
  const FloatTag d;
  for (int64_t i = 0; i < rows; ++i, dout += ld, out += out_stride) {
    auto sum = hn::Zero(d);
    int64_t j = 0;
    for (; j + kLanes <= width; j += kLanes) {
      sum = hn::MulAdd(hn::Load(d, dout + j), load_float(d, out + j), sum);
    }
    float tail = 0.0f;
    for (; j < width; ++j) tail += dout[j] * scalar_float(out[j]);
    delta[i] = hn::GetLane(hn::SumOfLanes(d, sum)) + tail;
  }
}

// scores becomes p and dscores, which holds dp, becomes ds; both are zero where the mask hides a key.
template <bool kCapped>
HWY_ATTR void probabilities(const ScoreBlock& block, float softcap, const RowPrefetch& upcoming,
                            const float* lse, const float* delta, float* scores, float* dscores) {
  const FloatTag d;
  const auto per_cap = hn::Set(d, kCapped ? 1.0f / softcap : 0.0f);
  for (int64_t i = 0; i < block.queries; ++i) {
    upcoming.fetch(i);
    float* score = scores + i * kScoreStride;
    float* dscore = dscores + i * kScoreStride;
    const auto shift = hn::Set(d, lse[i]);
    const auto mean = hn::Set(d, delta[i]);
    const auto slope_times = [&](FloatVec s, FloatVec ds) {
      if constexpr (!kCapped) return ds;
      const auto bent = hn::Max(hn::Mul(s, per_cap), hn::Set(d, -1.0f));  // what is not seen lies below
      return hn::Mul(ds, hn::NegMulAdd(bent, bent, hn::Set(d, 1.0f)));
    };
    for_columns(
        block, i,
        [&](int64_t j) {
          const auto s = hn::Load(d, score + j);
          const auto p = fast_exp(d, hn::Sub(s, shift));
          hn::Store(p, d, score + j);
          const auto ds = hn::Mul(p, hn::Sub(hn::Load(d, dscore + j), mean));
          hn::Store(slope_times(s, ds), d, dscore + j);
        },
        [&](int64_t j, ScoreMask in_reach) {
          const auto s = hn::Load(d, score + j);
          const auto p = fast_exp(d, hn::Sub(s, shift));
          const auto ds = hn::Mul(p, hn::Sub(hn::Load(d, dscore + j), mean));
          hn::Store(hn::IfThenElseZero(in_reach, p), d, score + j);
          hn::Store(hn::IfThenElseZero(in_reach, slope_times(s, ds)), d, dscore + j);
        });
  }
}

template <typename S>
HWY_ATTR void backward_task(const AttentionShape& shape, int64_t task, const S* dout, const S* qkv,
                            const S* out, const float* lse, Segments segments, S* dqkv, float* scratch) {
  const int64_t kv_head = task % shape.kv_heads;
  const int64_t batch = task / shape.kv_heads;
  const int64_t tokens = shape.tokens;
  const int64_t width = shape.head_dim;
  const int64_t ld = shape.head_stride();
  const int64_t stride = shape.qkv_stride();
  const int64_t out_stride = shape.out_stride();
  qkv += batch * tokens * stride;
  dqkv += batch * tokens * stride;
  dout += batch * tokens * out_stride;
  out += batch * tokens * out_stride;
  if (segments != nullptr) segments += batch * tokens;

  float* keys_t = scratch;
  float* values_t = keys_t + shape.transposed_elems();
  float* keys = values_t + shape.transposed_elems();
  float* dkeys = keys + shape.rows_elems();
  float* dvalues = dkeys + shape.rows_elems();
  float* queries = dvalues + shape.rows_elems();
  float* douts = queries + shape.query_elems();
  float* dqueries = douts + shape.query_elems();
  float* scores = dqueries + shape.query_elems();
  float* dscores = scores + kScoreElems;
  alignas(64) float delta[kQueryBlock];

  const S* key_src = qkv + shape.key_offset(kv_head);
  const S* value_src = qkv + shape.value_offset(kv_head);
  S* dkey_dst = dqkv + shape.key_offset(kv_head);
  S* dvalue_dst = dqkv + shape.value_offset(kv_head);
  int64_t packed = 0;  // keys and values packed so far: as many as any query yet has seen
  RowPrefetch upcoming;
  std::fill(dkeys, dvalues + shape.rows_elems(), 0.0f);

  for (int64_t head = kv_head * shape.group(); head < (kv_head + 1) * shape.group(); ++head) {
    for (int64_t first = 0; first < tokens; first += kQueryBlock) {
      const int64_t num_queries = std::min(kQueryBlock, tokens - first);
      // The scale goes into the queries: the scores and the key gradients then carry it already.
      pack_rows(qkv + first * stride + head * width, stride, num_queries, kQueryBlock, width, shape.scale,
                queries, ld);
      pack_rows(dout + first * out_stride + head * width, out_stride, num_queries, kQueryBlock, width, 1.0f,
                douts, ld);
      row_dots(douts, ld, out + first * out_stride + head * width, out_stride, num_queries, width, delta);
      const float* lse_row = lse + (batch * shape.heads + head) * tokens + first;
      const int64_t seen = shape.end_key(first + num_queries - 1);
      if (packed < seen) {
        pack_transposed(key_src, stride, packed, seen, width, keys_t);
        pack_transposed(value_src, stride, packed, seen, width, values_t);
        pack_rows(key_src + packed * stride, stride, seen - packed, seen - packed, width, 1.0f,
                  keys + packed * ld, ld);
        packed = seen;
      }
      upcoming.add(dqkv + first * stride + head * width, stride, width);
      if ((head + 1) % shape.group() == 0) {
        upcoming.add(dkey_dst + first * stride, stride, width);
        upcoming.add(dvalue_dst + first * stride, stride, width);
      }
      if (const int64_t next = first + kQueryBlock; next + kQueryBlock <= tokens) {
        upcoming.add(qkv + next * stride + head * width, stride, width);
        upcoming.add(dout + next * out_stride + head * width, out_stride, width);
        upcoming.add(out + next * out_stride + head * width, out_stride, width);
        if (packed < tokens) upcoming.add(key_src + next * stride, stride, width);
        if (packed < tokens) upcoming.add(value_src + next * stride, stride, width);
      }
      bool started = false;
      for (int64_t key = shape.first_key(first) / kKeyBlock * kKeyBlock; key < seen; key += kKeyBlock) {
        const ScoreBlock block = score_block(shape, first, num_queries, key, seen);
        if (!may_see(block, segments, first, key)) continue;
        const int64_t transposed = key / kKeyBlock * width * kScoreStride;
        score_product(block, width, queries, ld, keys_t + transposed, scores);
        score_product(block, width, douts, ld, values_t + transposed, dscores);
        shape_scores(shape, block, segments, first, key, scores);
        if (shape.softcap != 0) {
          probabilities<true>(block, shape.softcap, upcoming, lse_row, delta, scores, dscores);
        } else {
          probabilities<false>(block, 0, upcoming, lse_row, delta, scores, dscores);
        }
        upcoming.clear();
        key_product(block, width, scores, douts, dvalues + key * ld, ld);
        key_product(block, width, dscores, queries, dkeys + key * ld, ld);
        query_product(block, width, dscores, keys + key * ld, dqueries, ld, started);
        started = true;
      }
      unpack_rows(dqueries, ld, num_queries, width, shape.scale, dqkv + first * stride + head * width,
                  stride);
    }
  }
  unpack_rows(dkeys, ld, tokens, width, 1.0f, dkey_dst, stride);
  unpack_rows(dvalues, ld, tokens, width, 1.0f, dvalue_dst, stride);
}

}  // namespace attention

void attention_backward_task(const cpu::attention::AttentionShape& shape, int64_t task,
                             const KernelArgs& args, float* scratch) {
  const auto run_task = [&]<typename S>(S*) {
    attention::backward_task(shape, task, static_cast<const S*>(args.in[0].data),
                             static_cast<const S*>(args.in[1].data), static_cast<const S*>(args.in[2].data),
                             args.in[3].as<const float>(),
                             shape.segmented ? args.in[4].as<const int32_t>() : nullptr,
                             static_cast<S*>(args.out[0].data), scratch);
  };
  switch (args.in[1].type.dtype) {
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
HWY_EXPORT(attention_backward_task);

namespace cpu::attention {
namespace {

int64_t scratch_elems(const AttentionShape& shape) {
  return 2 * shape.transposed_elems() + 3 * shape.rows_elems() + 3 * shape.query_elems() + 2 * kScoreElems;
}

bool supports(const CallSignature& call) {
  return call.attrs->integer_or("sums", 0) == 0 && fast_attention_type(call.in[1], *call.attrs);
}

size_t workspace(const CallSignature& call, int num_threads) {
  const AttentionShape shape = attention_shape(call.in[1], *call.attrs);
  return static_cast<size_t>(scratch_elems(shape) * num_threads) * sizeof(float);
}

void run(const KernelArgs& args, Stream& stream) {
  const AttentionShape shape = attention_shape(args.in[1].type, args.attrs);
  const int64_t scratch = scratch_elems(shape);
  TANDEM_CHECK(args.workspace.size() >=
               static_cast<size_t>(scratch * stream.pool().num_threads()) * sizeof(float));
  float* workspace = reinterpret_cast<float*>(args.workspace.data());
  const auto backward_task = HWY_DYNAMIC_DISPATCH(attention_backward_task);
  stream.pool().parallel_for(shape.batch * shape.kv_heads, [&](int64_t task, int worker) {
    backward_task(shape, task, args, workspace + worker * scratch);
  });
}

}  // namespace

void add_grad_kernel(KernelRegistry& registry) {
  registry.add({"cpu.attention_grad", Op::AttentionGrad, supports, workspace, run});
}

}  // namespace cpu::attention
}  // namespace tandem
#endif
