#include "tandem/base/mesh.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"

namespace tandem {
namespace {

TEST(Mesh, EveryRankHasItsOwnPlace) {
  const MeshShape shape{.data = 2, .tensor = 3, .pipeline = 4};
  for (int rank = 0; rank < shape.world(); ++rank) EXPECT_EQ(rank, MeshPosition::of(shape, rank).rank());
  EXPECT_THROW(MeshPosition::of(shape, 24), BugError);
}

TEST(Mesh, GroupsCutTheWorldIntoEqualParts) {
  const MeshShape shape{.data = 2, .tensor = 2, .pipeline = 2};
  const MeshPosition at = MeshPosition::of(shape, 5);  // pipeline 1, data 0, tensor 1
  EXPECT_EQ((std::vector<int>{4, 5}), at.group(Axis::Tensor));
  EXPECT_EQ((std::vector<int>{5, 7}), at.group(Axis::Data));
  EXPECT_EQ((std::vector<int>{1, 5}), at.group(Axis::Pipeline));
  EXPECT_EQ(8u, at.group(Axis::World).size());
  for (Axis axis : kAxes) {
    EXPECT_EQ(5, at.group(axis)[static_cast<size_t>(at.index(axis))]);
    EXPECT_EQ(axis, parse_axis(axis_name(axis)));
  }
}

}  // namespace
}  // namespace tandem
