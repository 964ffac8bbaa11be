// What an entry of the table of optimizers (optimizers.h) consists of. Everything outside the kernels goes by
// it: config keys, the update's graph, checkpoints, which units may be cut where.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace tandem {

// A tensor of the parameter's shape that lives from step to step, f32 (f64 beside f64 weights), or as
// StateType says. It is called "<name>:<parameter>" in graphs and checkpoints.
struct StateTensor {
  std::string_view name;
  std::string_view init = "zeros";
  bool square = false;  // a mean of squares: never negative, and kept in 8 bits by its root
};

// In which numbers states are kept between steps; a step reads and makes them in f32
// (optimizers/packed_state.h).
enum class StateType : uint8_t { Fp32, Bf16, Int8 };

// Which numbers a hyper-parameter takes.
enum class HyperRange { BelowOne, Positive, NotNegative };

// A number of an optimizer's own, beside the learning rate, weight decay and clipping that all have.
struct HyperParam {
  std::string_view key;  // in configs; optimizers may share one
  double value;          // where a config does not give it
  HyperRange range;
  std::string_view doc;
};

// What of a parameter a step must see at once. Element: ranks cut parameters where they like, and the op of
// the optimizer goes from gradient and states to weights. Matrix: another op makes directions of gradients
// and states, element by element too; the update brings those of a matrix together on one rank, works on
// them there, and the optimizer's op takes what came out in the gradient's place (compile/matrix_update.h).
enum class Granularity { Element, Matrix };

// Which parameters `train.weight_decay` is for.
enum class Decays { Matrices, Nothing };  // matrices: two or more dims, not norms and biases

struct OptimizerEntry {
  std::string_view name;  // in configs, graphs and kernels
  std::span<const StateTensor> states;
  std::span<const HyperParam> hyper;
  double lr = 1e-3;  // where a config does not give it
  Granularity granularity = Granularity::Element;
  Decays decays = Decays::Matrices;
  // If there is one: the optimizer is for the matrices of blocks only, and the one of this name trains
  // embeddings, norms, biases and the head. Its hyper-parameters are the first of this one's.
  std::string_view beside = "";

  // How many states its op has beside weight and gradient.
  constexpr size_t rule_states() const { return granularity == Granularity::Element ? states.size() : 0; }
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
