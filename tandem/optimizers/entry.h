// What an entry of the table of optimizers (optimizers.h) consists of. Everything outside the kernels goes by
// it: config keys, the update's graph, checkpoints, which units may be cut where.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace tandem {

// What of a state is kept in 8 bits (optimizers/packed_state.h): the number itself; of a mean of squares,
// which is never negative, its root; or a number's share of that root, where a rule divides by it.
enum class Kept : uint8_t { Plain, Root, Share };

// A tensor of the parameter's shape that lives from step to step, f32 (f64 beside f64 weights), or as
// StateType says. It is called "<name>:<parameter>" in graphs and checkpoints.
struct StateTensor {
  std::string_view name;
  std::string_view init = "zeros";
  Kept kept = Kept::Plain;
};
// Which of a rule's states is a mean of squares; -1 where none is.
constexpr int root_state(std::span<const StateTensor> states) {
  for (size_t s = 0; s < states.size(); ++s) {
    if (states[s].kept == Kept::Root) return static_cast<int>(s);
  }
  return -1;
}

// In which numbers states are kept between steps; a step reads and makes them in f32
// (optimizers/packed_state.h).
enum class StateType : uint8_t { Fp32, Bf16, Int8 };

// Which numbers a hyper-parameter takes.
enum class HyperRange { BelowOne, Positive, NotNegative, Negative };

// A number of an optimizer's own, beside the learning rate, weight decay and clipping that all have.
struct HyperParam {
  std::string_view key;  // in configs; optimizers may share one
  double value;          // where a config does not give it
  HyperRange range;
  std::string_view doc;
};

// What of a parameter a step must see at once. Element: ranks cut parameters where they like, and the op of
// the optimizer goes from gradient and states to weights. Tensor: likewise, but the op also reads two norms
// of each whole parameter. Another op has measured them: it sums squares over what is here, and all ranks add
// up their sums. Matrix: another op makes directions of gradients and states, element by element too; the
// update brings those of a matrix together on one rank, works on them there, and the optimizer's op takes
// what came out in the gradient's place (compile/matrix_update.h).
enum class Granularity { Element, Tensor, Matrix };

// Which parameters `train.weight_decay` is for.
enum class Decays { Matrices, Nothing };  // matrices: two or more dims, not norms and biases

struct OptimizerEntry {
  std::string_view name;  // in configs, graphs and kernels
  std::span<const StateTensor> states;
  std::span<const HyperParam> hyper;
  double lr = 1e-3;  // where a config does not give it
  Granularity granularity = Granularity::Element;
  Decays decays = Decays::Matrices;
  // The number that is trained, evaluated and saved is an average; passes read another one, which the op
  // makes of it and of the states. So there are whole masters in any precision.
  bool averages = false;
  // Its one state holds means of squares over the rows and the columns of a matrix rather than of its
  // elements, rows + cols numbers in all; of a vector, one for each element. Ranks add up their squares, each
  // keeps all of these numbers, and directions are made of them and the gradients, in whose place the op of
  // the optimizer finds them (compile/factored_update.h).
  bool factored = false;
  // If there is one: the optimizer is for the matrices of blocks only, and the one of this name trains
  // embeddings, norms, biases and the head. Its hyper-parameters are the first of this one's.
  std::string_view beside = "";

  // How many states its op has beside weight and gradient.
  constexpr size_t rule_states() const { return takes_directions() ? 0 : states.size(); }
  // Whether its op takes, in the gradient's place, what other ops have made of gradients and states.
  constexpr bool takes_directions() const { return granularity == Granularity::Matrix || factored; }
  // How many tensors its op reads before the parameters': hyper, norm, and norms of whole parameters.
  constexpr size_t num_scalars() const { return granularity == Granularity::Tensor ? 3 : 2; }
  constexpr bool decays_rank(int64_t rank) const { return decays == Decays::Matrices && rank > 1; }
};

// Slots of the update's input `hyper`, f32: those that every optimizer has, then its own in their order.
inline constexpr int kHyperLr = 0;
inline constexpr int kHyperDecay = 1;
inline constexpr int kHyperStep = 2;  // 1-based count of updates made, this one included (bias correction)
inline constexpr int kHyperInvScale = 3;   // 1 / loss scale
inline constexpr int kHyperClip = 4;       // by the global norm; 0 = no clipping
inline constexpr int kHyperClipValue = 5;  // each element of the gradient; 0 = no clipping
inline constexpr int kHyperAverage = 6;  // this step's share in an average of all steps' weights, or squares
inline constexpr int kHyperOwn = 7;

}  // namespace tandem
