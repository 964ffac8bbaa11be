#include "tandem/kernels/cuda/device/gpu_of_rank.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "tandem/base/error.h"

namespace tandem::cuda {
namespace {

WorldInfo rank_here(int local_rank, int num_here) {
  WorldInfo world;
  world.rank = world.local_rank = local_rank;
  world.world_size = world.local_world_size = num_here;
  return world;
}

std::string host_of(int local_rank, int num_here, int num_gpus, int* sharing) {
  unsetenv("NCCL_HOSTID");
  *sharing = share_gpus(rank_here(local_rank, num_here), num_gpus);
  const char* host = std::getenv("NCCL_HOSTID");
  const std::string found = host == nullptr ? "" : host;
  unsetenv("NCCL_HOSTID");
  return found;
}

TEST(GpuOfRank, ranks_take_gpus_in_turn) {
  const Communicators some;
  for (int rank = 0; rank < 6; ++rank) EXPECT_EQ(gpu_of_rank(rank_here(rank, 6), 4, &some), rank % 4);
  EXPECT_EQ(gpu_of_rank(WorldInfo(), 4, nullptr), 0);
}

TEST(GpuOfRank, ranks_on_one_gpu_are_on_hosts_of_their_own_and_others_are_not) {
  int sharing = 0;
  EXPECT_EQ(host_of(1, 2, 2, &sharing), "");
  EXPECT_EQ(sharing, 1);
  EXPECT_EQ(host_of(0, 5, 2, &sharing), host_of(1, 5, 2, &sharing));
  EXPECT_NE(host_of(0, 5, 2, &sharing), host_of(2, 5, 2, &sharing));
  EXPECT_EQ(sharing, 3);  // ranks 0, 2 and 4
  host_of(3, 5, 2, &sharing);
  EXPECT_EQ(sharing, 2);
}

TEST(GpuOfRank, threads_take_the_gpu_of_their_rank_and_cannot_share_one) {
  MeshShape shape;
  shape.data = 3;
  const std::vector<Communicators> threads = connect_threads(shape, {});
  EXPECT_EQ(gpu_of_rank(WorldInfo(), 3, &threads[2]), 2);
  EXPECT_THROW(gpu_of_rank(WorldInfo(), 2, &threads[0]), ConfigError);
}

}  // namespace
}  // namespace tandem::cuda
