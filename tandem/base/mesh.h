// The mesh of ranks: three axes (data, tensor, pipeline), and which rank stands where. Plain arithmetic,
// known to the compiler and the planner for meshes larger than the machine.
//
// Neighbours on the tensor axis, which talk most, have neighbouring ranks:
//   rank = (pipeline position * data size + data position) * tensor size + tensor position.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tandem {

enum class Axis : uint8_t { World, Data, Tensor, Pipeline };
inline constexpr int kNumAxes = 4;
inline constexpr Axis kAxes[kNumAxes] = {Axis::World, Axis::Data, Axis::Tensor, Axis::Pipeline};
std::string_view axis_name(Axis axis);  // "data"
Axis parse_axis(std::string_view name);

struct MeshShape {
  int data = 1;
  int tensor = 1;
  int pipeline = 1;
  int world() const { return data * tensor * pipeline; }
  int size(Axis axis) const;
  bool operator==(const MeshShape&) const = default;
};

// One rank's place. Rank 0 of a mesh of one by default.
struct MeshPosition {
  MeshShape shape;
  int data = 0;
  int tensor = 0;
  int pipeline = 0;

  static MeshPosition of(const MeshShape& shape, int rank);
  int rank() const { return (pipeline * shape.data + data) * shape.tensor + tensor; }
  int size(Axis axis) const { return shape.size(axis); }
  int index(Axis axis) const;               // this rank's place among the ranks of its group
  std::vector<int> group(Axis axis) const;  // world ranks of this rank's group, in order of their index
  // Ranks that see the loss, each of other samples: the ranks of a tensor axis all see the same.
  bool counts_loss() const { return tensor == 0 && pipeline == shape.pipeline - 1; }
};

}  // namespace tandem
