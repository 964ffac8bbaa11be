// The sums of a row's parts are brought under the largest of all their maxima, rank by rank and in double.
#include "tandem/kernels/cpu/loss/vocab_loss_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tandem/kernels/cpu/pointwise/pointwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tandem/kernels/cpu/loss/vocab_loss_rows.cpp"
#include "hwy/foreach_target.h"
#include "tandem/kernels/cpu/loss/logit_row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {
namespace {

template <typename S>
size_t first_equal(const S* src, size_t n, float value) {
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  const auto wanted = hn::Set(d, value);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const intptr_t at = hn::FindFirstTrue(d, hn::Eq(load_float(d, src + i), wanted));
    if (at >= 0) return i + static_cast<size_t>(at);
  }
  for (; i < n; ++i) {
    if (scalar_float(src[i]) == value) return i;
  }
  return 0;  // a NaN: the loss will say so
}

template <typename S>
cpu::VocabPart describe_row(const S* row, cpu::VocabShard shard, int32_t target) {
  const float nowhere = -std::numeric_limits<float>::infinity();
  if (target < 0) return {nowhere, 0, nowhere, static_cast<float>(shard.first)};
  const auto n = static_cast<size_t>(shard.size);
  const RowMass mass = row_mass(row, n);
  const size_t at =
      mass.block + first_equal(row + mass.block, std::min(kLogitBlock, n - mass.block), mass.largest);
  return {.largest = mass.largest,
          .sum = static_cast<float>(mass.sum),
          .target = shard.contains(target) ? scalar_float(row[target - shard.first]) : nowhere,
          .id = static_cast<float>(shard.first + static_cast<int64_t>(at))};
}

void describe_rows(const cpu::LogitRows& in, cpu::VocabShard shard, int64_t begin, int64_t end,
                   cpu::VocabPart* parts) {
  cpu::with_storage(in.dtype, [&]<typename S>(S) {
    const S* logits = static_cast<const S*>(in.logits);
    for (int64_t r = begin; r < end; ++r)
      parts[r] = describe_row(logits + r * in.vocab, shard, in.targets[r]);
  });
}

// Row r: logits become exp(logit - shift) * factor, and the target's, if it is here, `at_target`.
void grad_row(const cpu::LogitRows& in, int64_t r, cpu::VocabShard shard, float shift, float factor,
              float at_target) {
  cpu::with_storage(in.dtype, [&]<typename S>(S) {
    S* row = static_cast<S*>(in.logits) + r * in.vocab;
    exp_row(row, static_cast<size_t>(shard.size), shift, factor);
    std::memset(row + shard.size, 0, static_cast<size_t>(in.vocab - shard.size) * sizeof(S));
    if (shard.contains(in.targets[r])) store_scalar(at_target, row + (in.targets[r] - shard.first));
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem {
HWY_EXPORT(describe_rows);
HWY_EXPORT(grad_row);

namespace cpu {
namespace {

constexpr int64_t kRowsPerPartial = 512;

struct VocabRow {
  float largest;
  double sum;     // of exp(logit - largest)
  double margin;  // the target's logit - largest
  float id;       // of the first of the largest
};

VocabRow join_parts(const VocabParts& in, int64_t row) {
  const float nowhere = -std::numeric_limits<float>::infinity();
  VocabRow all{nowhere, 0, nowhere, 0};
  float target = nowhere;
  for (int64_t r = 0; r < in.size; ++r) {
    const VocabPart& part = in.parts[r * in.rows + row];
    if (part.largest > all.largest || (part.largest == all.largest && part.id < all.id)) {
      all.largest = part.largest;
      all.id = part.id;
    }
    if (part.target != nowhere) target = part.target;
  }
  for (int64_t r = 0; r < in.size; ++r) {
    const VocabPart& part = in.parts[r * in.rows + row];
    all.sum += part.sum * std::exp(static_cast<double>(part.largest) - all.largest);
  }
  all.margin = static_cast<double>(target) - all.largest;
  return all;
}

}  // namespace

void describe_vocab_rows(const LogitRows& in, VocabShard shard, VocabPart* parts, ThreadPool& pool) {
  for_row_groups(pool, in.rows, in.vocab, [&](int64_t begin, int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(describe_rows)(in, shard, begin, end, parts);
  });
}

int64_t num_vocab_loss_partials(int64_t rows) { return (rows + kRowsPerPartial - 1) / kRowsPerPartial; }

LossSums vocab_loss(const VocabParts& in, LossSums* partials, ThreadPool& pool) {
  for_pieces(pool, in.rows, kRowsPerPartial, [&](int64_t begin, int64_t end, int) {
    LossSums sums;
    for (int64_t row = begin; row < end; ++row) {
      if (in.targets[row] < 0) continue;
      const VocabRow all = join_parts(in, row);
      sums.nll += std::log(all.sum) - all.margin;
      sums.correct += all.id == static_cast<float>(in.targets[row]) ? 1 : 0;
    }
    partials[begin / kRowsPerPartial] = sums;
  });
  LossSums total;
  for (int64_t i = 0; i < num_vocab_loss_partials(in.rows); ++i) {
    total.nll += partials[i].nll;
    total.correct += partials[i].correct;
  }
  return total;
}

void vocab_loss_grad(const LogitRows& logits, VocabShard shard, const VocabParts& in, float scale,
                     ThreadPool& pool) {
  for_row_groups(pool, logits.rows, logits.vocab, [&](int64_t begin, int64_t end, int) {
    const size_t bytes = static_cast<size_t>(logits.vocab * dtype_bytes(logits.dtype));
    for (int64_t r = begin; r < end; ++r) {
      if (in.targets[r] < 0) {
        std::memset(static_cast<std::byte*>(logits.logits) + static_cast<size_t>(r) * bytes, 0, bytes);
        continue;
      }
      const VocabRow all = join_parts(in, r);
      // Near a sure prediction the difference p - 1 would cancel in fp32.
      const double at_target = (std::exp(all.margin) / all.sum - 1) * scale;
      HWY_DYNAMIC_DISPATCH(grad_row)
      (logits, r, shard, all.largest, static_cast<float>(scale / all.sum), static_cast<float>(at_target));
    }
  });
}

}  // namespace cpu
}  // namespace tandem
#endif
