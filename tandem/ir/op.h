// The op set. What the compiler knows of each op, its contract first, is its entry in the table of
// op_table.h; the entries of a group are in the file named here.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "tandem/optimizers/optimizers.h"

namespace tandem {

enum class Op : uint8_t {
  // leaves (ops/leaf.cpp)
  Input,
  Param,
  State,

  // linear algebra (ops/linear.cpp), convolutions (ops/image.cpp)
  Matmul,
  MatmulGelu,
  MatmulAcc,
  MatmulBiasAcc,
  MatmulGeluGrad,
  Conv2d,
  Conv2dGradInput,
  Conv2dGradWeight,
  BiasGrad,

  // products of 8-bit floats (ops/fp8.cpp)
  Fp8Scales,
  Fp8WeightScales,
  Fp8Quantize,
  Fp8Swiglu,
  Fp8SwigluGrad,
  Fp8Matmul,
  Fp8MatmulAcc,
  Fp8Ranges,

  // normalisation (ops/norm.cpp, ops/image_norm.cpp)
  LayerNorm,
  AddLayerNorm,
  LayerNormGrad,
  RmsNorm,
  AddRmsNorm,
  RmsNormGrad,
  BatchNorm,
  BatchNormInfer,
  BatchNormGrad,
  BatchNormStats,
  BatchNormApply,
  BatchNormGradStats,
  BatchNormGradApply,
  GroupNorm,
  GroupNormGrad,

  // attention (ops/attention.cpp, ops/cached_attention.cpp, ops/qk_norm.cpp)
  QkNorm,
  QkNormGrad,
  Rope,
  RopeGrad,
  Attention,
  AttentionGrad,
  CachedAttention,

  // pointwise (ops/pointwise.cpp)
  Add,
  Scale,
  Gelu,
  GeluGrad,
  Relu,
  ReluGrad,
  Softcap,
  SoftcapGrad,
  Swiglu,
  SwigluGrad,
  Geglu,
  GegluGrad,
  Dropout,

  // shapes, types and views (ops/shape.cpp)
  Concat,
  Slice,
  Reshape,
  View,
  Join,
  Zeros,
  Cast,

  // pooling (ops/image.cpp)
  MaxPool2d,
  MaxPool2dGrad,
  GlobalAvgPool,
  GlobalAvgPoolGrad,

  // embedding (ops/embedding.cpp)
  Embedding,
  EmbeddingGrad,
  PositionGrad,

  // loss (ops/loss.cpp)
  CrossEntropy,
  CrossEntropyGrad,
  LinearCrossEntropy,
  LinearCrossEntropyGrad,
  VocabParts,
  VocabLoss,
  VocabLossGrad,
  AddStats,
  Measure,

  // the update (ops/optimizer.cpp), with an op for each optimizer of the table of optimizers
  SquareSums,
  GlobalNorm,
#define TANDEM_OP(type, name) type,
  TANDEM_OPTIMIZERS(TANDEM_OP)
#undef TANDEM_OP
#define TANDEM_OP(type, name) type##Sums,
      TANDEM_TENSOR_OPTIMIZERS(TANDEM_OP)
#undef TANDEM_OP
          ScaleLoss,
  UnscaleHyper,
  NextLossScale,
  BlendWeights,
  Ema,
  ExchangeWeights,

  // what an update does with whole matrices (ops/matrix_update.cpp)
  MuonDirection,
  NormalizeMatrix,
  WeightedSum,
  PlaceMatrix,

  // what it does where mean squares are kept by rows and columns (ops/factored_update.cpp)
  FactorSums,
  FactorMoments,
  FactorDirections,

  // collectives, and copies between memories (ops/collective.cpp)
  AllGather,
  ReduceScatter,
  AllReduce,
  Send,
  Recv,
  Copy,
};

inline constexpr int kNumOps = static_cast<int>(Op::Copy) + 1;

// The optimizers' ops are in the order of their table.
constexpr Op optimizer_op(OptimizerKind kind) {
  return static_cast<Op>(static_cast<size_t>(Op::AdamW) + static_cast<size_t>(kind));
}
constexpr std::optional<OptimizerKind> optimizer_of(Op op) {
  const auto kind = static_cast<size_t>(op) - static_cast<size_t>(Op::AdamW);
  if (op < Op::AdamW || kind >= kNumOptimizers) return {};
  return static_cast<OptimizerKind>(kind);
}

// Of an optimizer that reads norms of whole parameters: the op that sums their squares, and back.
constexpr Op sums_op(OptimizerKind kind) {
  return static_cast<Op>(static_cast<size_t>(Op::LambSums) + static_cast<size_t>(kind) -
                         static_cast<size_t>(OptimizerKind::Lamb));
}
constexpr Op measured_op(Op sums) {
  return static_cast<Op>(static_cast<size_t>(Op::Lamb) + static_cast<size_t>(sums) -
                         static_cast<size_t>(Op::LambSums));
}

// Slots of `scaler`.
inline constexpr int kScalerScale = 0;
inline constexpr int kScalerGoodSteps = 1;  // since the scale last changed, or a step was skipped
inline constexpr int kScalerSlots = 2;

std::string_view op_name(Op op);     // "matmul_gelu"
Op parse_op(std::string_view name);  // throws ConfigError on an unknown name

}  // namespace tandem
