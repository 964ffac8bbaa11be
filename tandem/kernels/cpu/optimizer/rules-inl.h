// The update rules in the CPU's vectors: the fp32 operations that each optimizer's header
// (tandem/optimizers) says, in that order. They use no fused multiply-adds, which not every target has. A
// rule gives the new weight from the old one and the gradient, and updates the states.
// Included once per target from within foreach_target, hence the toggled guard.
#if defined(TANDEM_KERNELS_CPU_RULES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_KERNELS_CPU_RULES_INL_H_
#undef TANDEM_KERNELS_CPU_RULES_INL_H_
#else
#define TANDEM_KERNELS_CPU_RULES_INL_H_
#endif

#include "hwy/highway.h"
#include "tandem/kernels/cpu/pointwise/pointwise-inl.h"
#include "tandem/optimizers/optimizers.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {

template <typename Optimizer>
class Rule;

template <>
class Rule<AdamW> {
 public:
  Rule(const OptimizerStep<AdamW>& step, bool decayed)
      : beta1_(hn::Set(FloatTag(), step.own.beta1)),
        rest1_(hn::Set(FloatTag(), step.own.rest1)),
        beta2_(hn::Set(FloatTag(), step.own.beta2)),
        rest2_(hn::Set(FloatTag(), step.own.rest2)),
        eps_(hn::Set(FloatTag(), step.own.eps)),
        rate_(hn::Set(FloatTag(), step.own.rate)),
        root_scale_(hn::Set(FloatTag(), step.own.root_scale)),
        keep_(hn::Set(FloatTag(), decayed ? step.keep : 1.0f)) {}

  HWY_INLINE FloatVec operator()(FloatVec w, FloatVec g, FloatVec& m, FloatVec& v) const {
    m = hn::Add(hn::Mul(beta1_, m), hn::Mul(rest1_, g));
    v = hn::Add(hn::Mul(beta2_, v), hn::Mul(rest2_, hn::Mul(g, g)));
    const auto root = hn::Add(hn::Mul(hn::Sqrt(v), root_scale_), eps_);
    const auto direction = hn::Div(hn::Mul(rate_, m), root);
    return hn::Sub(hn::Mul(w, keep_), direction);
  }

 private:
  FloatVec beta1_, rest1_, beta2_, rest2_, eps_, rate_, root_scale_, keep_;
};

template <>
class Rule<Sgd> {
 public:
  Rule(const OptimizerStep<Sgd>& step, bool decayed)
      : momentum_(hn::Set(FloatTag(), step.own.momentum)),
        lr_(hn::Set(FloatTag(), step.lr)),
        decay_(hn::Set(FloatTag(), decayed ? step.decay : 0.0f)) {}

  HWY_INLINE FloatVec operator()(FloatVec w, FloatVec g, FloatVec& m) const {
    m = hn::Add(hn::Mul(momentum_, m), hn::Add(hn::Mul(decay_, w), g));
    return hn::Sub(w, hn::Mul(lr_, m));
  }

 private:
  FloatVec momentum_, lr_, decay_;
};

template <>
class Rule<Lion> {
 public:
  Rule(const OptimizerStep<Lion>& step, bool decayed)
      : beta1_(hn::Set(FloatTag(), step.own.beta1)),
        rest1_(hn::Set(FloatTag(), step.own.rest1)),
        beta2_(hn::Set(FloatTag(), step.own.beta2)),
        rest2_(hn::Set(FloatTag(), step.own.rest2)),
        lr_(hn::Set(FloatTag(), step.lr)),
        keep_(hn::Set(FloatTag(), decayed ? step.keep : 1.0f)) {}

  HWY_INLINE FloatVec operator()(FloatVec w, FloatVec g, FloatVec& m) const {
    const auto c = hn::Add(hn::Mul(beta1_, m), hn::Mul(rest1_, g));
    m = hn::Add(hn::Mul(beta2_, m), hn::Mul(rest2_, g));
    const auto move = hn::IfThenZeroElse(hn::Eq(c, hn::Zero(FloatTag())), hn::CopySign(lr_, c));
    return hn::Sub(hn::Mul(w, keep_), move);
  }

 private:
  FloatVec beta1_, rest1_, beta2_, rest2_, lr_, keep_;
};

// measured() is what the second norm is of; the first is the weight's.
template <>
class Rule<Lamb> {
 public:
  Rule(const OptimizerStep<Lamb>& step, bool decayed)
      : beta1_(hn::Set(FloatTag(), step.own.beta1)),
        rest1_(hn::Set(FloatTag(), step.own.rest1)),
        beta2_(hn::Set(FloatTag(), step.own.beta2)),
        rest2_(hn::Set(FloatTag(), step.own.rest2)),
        eps_(hn::Set(FloatTag(), step.own.eps)),
        mean_scale_(hn::Set(FloatTag(), step.own.mean_scale)),
        root_scale_(hn::Set(FloatTag(), step.own.root_scale)),
        decay_(hn::Set(FloatTag(), decayed ? step.decay : 0.0f)),
        rate_(hn::Set(FloatTag(), step.lr * step.own.trust)) {}

  HWY_INLINE FloatVec operator()(FloatVec w, FloatVec g, FloatVec& m, FloatVec& v) const {
    return hn::Sub(w, hn::Mul(rate_, direction(w, g, m, v)));
  }
  HWY_INLINE FloatVec measured(FloatVec w, FloatVec g, FloatVec m, FloatVec v) const {
    return direction(w, g, m, v);
  }

 private:
  HWY_INLINE FloatVec direction(FloatVec w, FloatVec g, FloatVec& m, FloatVec& v) const {
    m = hn::Add(hn::Mul(beta1_, m), hn::Mul(rest1_, g));
    v = hn::Add(hn::Mul(beta2_, v), hn::Mul(rest2_, hn::Mul(g, g)));
    const auto root = hn::Add(hn::Mul(hn::Sqrt(v), root_scale_), eps_);
    return hn::Add(hn::Div(hn::Mul(mean_scale_, m), root), hn::Mul(decay_, w));
  }

  FloatVec beta1_, rest1_, beta2_, rest2_, eps_, mean_scale_, root_scale_, decay_, rate_;
};

template <>
class Rule<Lars> {
 public:
  Rule(const OptimizerStep<Lars>& step, bool decayed)
      : momentum_(hn::Set(FloatTag(), step.own.momentum)),
        lr_(hn::Set(FloatTag(), step.lr)),
        decay_(hn::Set(FloatTag(), decayed ? step.decay : 0.0f)),
        trust_(hn::Set(FloatTag(), step.own.trust)) {}

  HWY_INLINE FloatVec operator()(FloatVec w, FloatVec g, FloatVec& m) const {
    m = hn::Add(hn::Mul(momentum_, m), hn::Mul(trust_, hn::Add(hn::Mul(decay_, w), g)));
    return hn::Sub(w, hn::Mul(lr_, m));
  }
  HWY_INLINE FloatVec measured(FloatVec, FloatVec g, FloatVec) const { return g; }

 private:
  FloatVec momentum_, lr_, decay_, trust_;
};

// What its other ops have made of gradient and state comes in the gradient's place.
template <>
class Rule<Adafactor> {
 public:
  Rule(const OptimizerStep<Adafactor>& step, bool decayed)
      : keep_(hn::Set(FloatTag(), decayed ? step.keep : 1.0f)), trust_(hn::Set(FloatTag(), step.own.trust)) {}

  HWY_INLINE FloatVec operator()(FloatVec w, FloatVec u) const {
    return hn::Sub(hn::Mul(w, keep_), hn::Mul(trust_, u));
  }
  HWY_INLINE FloatVec measured(FloatVec, FloatVec u) const { return u; }

 private:
  FloatVec keep_, trust_;
};

// The weight is the average of all steps'; shown() is what passes read.
template <>
class Rule<ScheduleFree> {
 public:
  Rule(const OptimizerStep<ScheduleFree>& step, bool decayed)
      : share_(hn::Set(FloatTag(), step.own.share)),
        beta2_(hn::Set(FloatTag(), step.own.beta2)),
        rest2_(hn::Set(FloatTag(), step.own.rest2)),
        eps_(hn::Set(FloatTag(), step.own.eps)),
        root_scale_(hn::Set(FloatTag(), step.own.root_scale)),
        average_(hn::Set(FloatTag(), step.own.average)),
        rest_(hn::Set(FloatTag(), step.own.rest)),
        lr_(hn::Set(FloatTag(), step.lr)),
        decay_(hn::Set(FloatTag(), decayed ? step.decay : 0.0f)) {}

  HWY_INLINE FloatVec operator()(FloatVec x, FloatVec g, FloatVec& lead, FloatVec& v) const {
    v = hn::Add(hn::Mul(beta2_, v), hn::Mul(rest2_, hn::Mul(g, g)));
    const auto root = hn::Add(hn::Mul(hn::Sqrt(v), root_scale_), eps_);
    const auto direction = hn::Add(hn::Div(g, root), hn::Mul(decay_, shown(x, lead)));
    const auto moved = hn::Sub(lead, hn::Mul(lr_, direction));
    lead = hn::Mul(rest_, moved);
    return hn::Add(x, hn::Mul(average_, moved));
  }
  HWY_INLINE FloatVec shown(FloatVec x, FloatVec lead) const { return hn::Add(x, hn::Mul(share_, lead)); }

 private:
  FloatVec share_, beta2_, rest2_, eps_, root_scale_, average_, rest_, lr_, decay_;
};

// What its other ops have made of gradient and momentum comes in the gradient's place.
template <>
class Rule<Muon> {
 public:
  Rule(const OptimizerStep<Muon>& step, bool decayed)
      : lr_(hn::Set(FloatTag(), step.lr)), keep_(hn::Set(FloatTag(), decayed ? step.keep : 1.0f)) {}

  HWY_INLINE FloatVec operator()(FloatVec w, FloatVec o) const {
    return hn::Sub(hn::Mul(w, keep_), hn::Mul(lr_, o));
  }

 private:
  FloatVec lr_, keep_;
};

}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#endif
