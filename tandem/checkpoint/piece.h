// A rank's part of a logical tensor: which box of it, and where in memory its elements lie, row-major: as
// they are or, of an fp32 tensor, in halves (base/split_float.h). Saving takes views; loading fills targets,
// whatever boxes the checkpoint was written in. Files know no halves.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "tandem/base/dtype.h"
#include "tandem/base/shape.h"
#include "tandem/checkpoint/boxes.h"

namespace tandem {

// Tensors of this prefix are hints: a checkpoint that lacks them, or has them in another shape, loads all the
// same, with zeros in their place, and one that holds them loads where nobody asks for them.
inline constexpr std::string_view kHintPrefix = "fp8.";

struct LogicalTensor {
  std::string name;
  DType dtype = DType::F32;
  Shape shape;
};

template <typename Byte>
struct TensorPiece {
  std::string name;
  DType dtype = DType::F32;
  Shape shape;  // of the whole tensor
  Box box;
  std::span<Byte> bytes;  // of the box, or the high halves
  std::span<Byte> low;    // the low halves; empty where `bytes` has all

  TensorPiece() = default;
  TensorPiece(std::string tensor, DType type, Shape logical, Box part, std::span<Byte> memory)
      : name(std::move(tensor)), dtype(type), shape(std::move(logical)), box(part), bytes(memory) {}
  // The whole tensor.
  TensorPiece(std::string tensor, DType type, Shape logical, std::span<Byte> memory)
      : TensorPiece(std::move(tensor), type, logical, whole_box(logical), memory) {}

  int64_t num_bytes() const { return box.elems() * dtype_bytes(dtype); }
  bool in_halves() const { return !low.empty(); }
  bool fits() const {  // its memory has num_bytes
    return num_bytes() == static_cast<int64_t>(bytes.size() + low.size()) &&
           (!in_halves() || (dtype == DType::F32 && bytes.size() == low.size()));
  }
};

using TensorView = TensorPiece<const std::byte>;
using TensorTarget = TensorPiece<std::byte>;

}  // namespace tandem
