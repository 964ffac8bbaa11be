// The loop that all update rules (rules-inl.h) share: one pass over a chunk that reads the weight (or its
// master), the gradient and the states as fp32, applies the rule, and stores the new weight, the new states
// and a zeroed gradient.
// Included once per target from within foreach_target, hence the toggled guard.
#if defined(TANDEM_KERNELS_CPU_OPTIMIZER_UPDATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_KERNELS_CPU_OPTIMIZER_UPDATE_INL_H_
#undef TANDEM_KERNELS_CPU_OPTIMIZER_UPDATE_INL_H_
#else
#define TANDEM_KERNELS_CPU_OPTIMIZER_UPDATE_INL_H_
#endif

#include "hwy/highway.h"
#include "tandem/kernels/cpu/optimizer/optimizer_kernels.h"
#include "tandem/kernels/cpu/pointwise/pointwise-inl.h"
#include "tandem/kernels/cpu/pointwise/pointwise.h"
#include "tandem/optimizers/optimizers.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {

// The master whose halves these are (tandem/base/split_float.h).
HWY_INLINE FloatVec load_joined(FloatTag d, const BFloat16* high, const int16_t* low, Whole) {
  const hn::Rebind<uint16_t, FloatTag> d16;
  const hn::Rebind<int16_t, FloatTag> i16;
  const hn::RebindToUnsigned<FloatTag> d32;
  const hn::RebindToSigned<FloatTag> i32;
  const auto top = hn::PromoteTo(d32, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(high)));
  const auto rest = hn::BitCast(d32, hn::PromoteTo(i32, hn::LoadU(i16, low)));
  return hn::BitCast(d, hn::Add(hn::ShiftLeft<16>(top), rest));
}
HWY_INLINE FloatVec load_joined(FloatTag d, const BFloat16* high, const int16_t* low, Part part) {
  alignas(64) BFloat16 padded_high[HWY_MAX_BYTES / sizeof(float)] = {};
  alignas(64) int16_t padded_low[HWY_MAX_BYTES / sizeof(float)] = {};
  std::memcpy(padded_high, high, part.count * sizeof(BFloat16));
  std::memcpy(padded_low, low, part.count * sizeof(int16_t));
  return load_joined(d, padded_high, padded_low, Whole{});
}

HWY_INLINE void store_split(FloatTag, FloatVec v, BFloat16* high, int16_t* low, Whole) {
  const hn::RebindToUnsigned<FloatTag> d32;
  const hn::Rebind<uint16_t, FloatTag> d16;
  const auto bits = hn::BitCast(d32, v);
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Set(d32, 0x8000u)));
  const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(d32, 0x40u));
  const auto is_nan = hn::RebindMask(d32, hn::IsNaN(v));
  hn::StoreU(hn::TruncateTo(d16, hn::IfThenElse(is_nan, quiet, rounded)), d16,
             reinterpret_cast<uint16_t*>(high));
  hn::StoreU(hn::TruncateTo(d16, hn::IfThenZeroElse(is_nan, bits)), d16, reinterpret_cast<uint16_t*>(low));
}
HWY_INLINE void store_split(FloatTag d, FloatVec v, BFloat16* high, int16_t* low, Part part) {
  alignas(64) BFloat16 padded_high[HWY_MAX_BYTES / sizeof(float)];
  alignas(64) int16_t padded_low[HWY_MAX_BYTES / sizeof(float)];
  store_split(d, v, padded_high, padded_low, Whole{});
  std::memcpy(high, padded_high, part.count * sizeof(BFloat16));
  std::memcpy(low, padded_low, part.count * sizeof(int16_t));
}

// A number that a master is not stored beside, rounded as if it was.
template <typename W>
HWY_INLINE void store_alone(FloatTag d, FloatVec v, W* dst, auto part) {
  if constexpr (std::is_same_v<W, BFloat16>) {
    alignas(64) int16_t low[HWY_MAX_BYTES / sizeof(float)];
    store_split(d, v, dst, low, part);
  } else {
    store_float(d, v, dst, part);
  }
}

// The weight alone, its fp32 master beside it, a bf16 weight with its master's low half, or a master whose
// weight is another number.
enum class Trained { Weight, Master, Halves, Apart };

template <Trained kTrained, typename W>
HWY_INLINE FloatVec load_trained(FloatTag d, const cpu::UpdateChunk& chunk, const W* w, size_t i, auto part) {
  if constexpr (kTrained == Trained::Halves) {
    return load_joined(d, w + i, static_cast<const int16_t*>(chunk.master) + i, part);
  } else if constexpr (kTrained == Trained::Master || kTrained == Trained::Apart) {
    return load_float(d, static_cast<const float*>(chunk.master) + i, part);
  } else {
    return load_float(d, w + i, part);
  }
}

template <Trained kTrained, typename W>
HWY_INLINE void store_trained(FloatTag d, FloatVec v, const cpu::UpdateChunk& chunk, W* w, size_t i,
                              auto part) {
  if constexpr (kTrained == Trained::Halves) {
    store_split(d, v, w + i, static_cast<int16_t*>(chunk.master) + i, part);
  } else {
    if constexpr (kTrained == Trained::Master) store_float(d, v, static_cast<float*>(chunk.master) + i, part);
    store_float(d, v, w + i, part);
  }
}

// rule(weight, gradient, states...) with the first kStates states, which it updates.
template <size_t kStates>
HWY_INLINE FloatVec apply_rule(const cpu::UpdateChunk& chunk, FloatVec w, FloatVec g, size_t i, auto part,
                               const auto& rule) {
  static_assert(kStates <= cpu::kMaxStates);
  const FloatTag d;
  if constexpr (kStates == 0) return rule(w, g);
  if constexpr (kStates == 1) {
    auto state = load_float(d, chunk.states[0] + i, part);
    const auto updated = rule(w, g, state);
    store_float(d, state, chunk.states[0] + i, part);
    return updated;
  } else if constexpr (kStates == 2) {
    auto first = load_float(d, chunk.states[0] + i, part);
    auto second = load_float(d, chunk.states[1] + i, part);
    const auto updated = rule(w, g, first, second);
    store_float(d, first, chunk.states[0] + i, part);
    store_float(d, second, chunk.states[1] + i, part);
    return updated;
  }
}

// How a stored gradient is read: unscaled, and clipped.
struct GradientReader {
  template <typename Optimizer>
  explicit GradientReader(const OptimizerStep<Optimizer>& step)
      : factor(hn::Set(FloatTag(), op_grad_factor(step))), largest(hn::Set(FloatTag(), op_largest(step))) {}

  template <typename G>
  HWY_INLINE FloatVec read(const G* g, auto part) const {
    const auto scaled = hn::Mul(load_float(FloatTag(), g, part), factor);
    return hn::Min(hn::Max(scaled, hn::Neg(largest)), largest);
  }

  FloatVec factor, largest;
};

template <size_t kStates, Trained kTrained, typename W, typename G>
HWY_INLINE void update_elems(const cpu::UpdateChunk& chunk, const GradientReader& reader, const auto& rule) {
  const FloatTag d;
  W* w = static_cast<W*>(chunk.w);
  G* g = static_cast<G*>(chunk.g);
  for_each_vector(static_cast<size_t>(chunk.elems), [&](size_t i, auto part) {
    const auto old = load_trained<kTrained>(d, chunk, w, i, part);
    const auto grad = reader.read(g + i, part);
    const auto updated = apply_rule<kStates>(chunk, old, grad, i, part, rule);
    if constexpr (kTrained == Trained::Apart) {
      store_float(d, updated, static_cast<float*>(chunk.master) + i, part);
      store_alone(d, rule.shown(updated, load_float(d, chunk.states[0] + i, part)), w + i, part);
    } else {
      store_trained<kTrained>(d, updated, chunk, w, i, part);
    }
    if (!chunk.keep_gradient) store_float(d, hn::Zero(d), g + i, part);
  });
}

// Calls visit with the types of a chunk: visit.template operator()<Trained, W, G>().
template <bool kApart, typename Visit>
HWY_INLINE void with_types(const cpu::UpdateChunk& chunk, const Visit& visit) {
  cpu::with_storage(chunk.w_dtype, [&]<typename W>(W) {
    const auto by_gradient = [&]<Trained kTrained>() {
      if (chunk.g_dtype == DType::F32) {
        visit.template operator()<kTrained, W, float>();
      } else {
        visit.template operator()<kTrained, W, W>();
      }
    };
    if constexpr (kApart) {
      by_gradient.template operator()<Trained::Apart>();
    } else if (chunk.master != nullptr) {
      constexpr Trained kMaster = std::is_same_v<W, BFloat16> ? Trained::Halves : Trained::Master;
      by_gradient.template operator()<kMaster>();
    } else {
      by_gradient.template operator()<Trained::Weight>();
    }
  });
}

template <typename Optimizer>
HWY_INLINE void update_chunk(const cpu::UpdateChunk& chunk, const GradientReader& reader, const auto& rule) {
  with_types<Optimizer::kEntry.averages>(chunk, [&]<Trained kTrained, typename W, typename G>() {
    update_elems<Optimizer::kEntry.rule_states(), kTrained, W, G>(chunk, reader, rule);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#endif
