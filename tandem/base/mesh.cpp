#include "tandem/base/mesh.h"

#include <array>

#include "tandem/base/error.h"

namespace tandem {
namespace {

constexpr std::array<std::string_view, kNumAxes> kNames = {"world", "data", "tensor", "pipeline"};

}  // namespace

std::string_view axis_name(Axis axis) { return kNames[static_cast<size_t>(axis)]; }

Axis parse_axis(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<Axis>(i);
  }
  throw ConfigError("axis '{}': expected world, data, tensor or pipeline", name);
}

int MeshShape::size(Axis axis) const {
  switch (axis) {
    case Axis::World: return world();
    case Axis::Data: return data;
    case Axis::Tensor: return tensor;
    case Axis::Pipeline: return pipeline;
  }
  return 1;
}

MeshPosition MeshPosition::of(const MeshShape& shape, int rank) {
  TANDEM_CHECK(rank >= 0 && rank < shape.world(), "rank {} of a world of {}", rank, shape.world());
  return {shape, rank / shape.tensor % shape.data, rank % shape.tensor, rank / shape.tensor / shape.data};
}

int MeshPosition::index(Axis axis) const {
  switch (axis) {
    case Axis::World: return rank();
    case Axis::Data: return data;
    case Axis::Tensor: return tensor;
    case Axis::Pipeline: return pipeline;
  }
  return 0;
}

std::vector<int> MeshPosition::group(Axis axis) const {
  std::vector<int> ranks;
  MeshPosition at = *this;
  for (int i = 0; i < size(axis); ++i) {
    switch (axis) {
      case Axis::World: ranks.push_back(i); continue;
      case Axis::Data: at.data = i; break;
      case Axis::Tensor: at.tensor = i; break;
      case Axis::Pipeline: at.pipeline = i; break;
    }
    ranks.push_back(at.rank());
  }
  return ranks;
}

}  // namespace tandem
