// What an entry of the table of optimizers (optimizers.h) consists of. Everything outside the kernels goes by
// it: config keys, the update's graph, checkpoints, which units may be cut where.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace tandem {

// A tensor of the parameter's shape that lives from step to step, f32 (f64 beside f64 weights). It is called
// "<name>:<parameter>" in graphs and checkpoints.
struct StateTensor {
  std::string_view name;
  std::string_view init = "zeros";
};

// Which numbers a hyper-parameter takes.
enum class HyperRange { BelowOne, Positive, NotNegative };

// A number of an optimizer's own, beside the learning rate, weight decay and clipping that all have.
struct HyperParam {
  std::string_view key;  // in configs; optimizers may share one
  double value;          // where a config does not give it
  HyperRange range;
  std::string_view doc;
};

// What of a parameter the rule must see at once, so that ranks may cut parameters no finer than this.
enum class Granularity { Element, Row, Matrix };

// Which parameters `train.weight_decay` is for.
enum class Decays { Matrices, Nothing };  // matrices: two or more dims, not norms and biases

struct OptimizerEntry {
  std::string_view name;  // in configs, graphs and kernels
  std::span<const StateTensor> states;
  std::span<const HyperParam> hyper;
  double lr = 1e-3;  // where a config does not give it
  Granularity granularity = Granularity::Element;
  Decays decays = Decays::Matrices;

  constexpr bool decays_rank(int64_t rank) const { return decays == Decays::Matrices && rank > 1; }
};

// Slots of the update's input `hyper`, f32: those that every optimizer has, then its own in their order.
inline constexpr int kHyperLr = 0;
inline constexpr int kHyperDecay = 1;
inline constexpr int kHyperStep = 2;  // 1-based count of updates made, this one included (bias correction)
inline constexpr int kHyperInvScale = 3;  // 1 / loss scale
inline constexpr int kHyperClip = 4;      // 0 = no clipping
inline constexpr int kHyperOwn = 5;

}  // namespace tandem
