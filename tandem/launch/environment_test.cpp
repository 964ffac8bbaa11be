#include "tandem/launch/environment.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tandem/base/error.h"

namespace tandem {
namespace {

bool contains(const std::vector<std::string>& entries, const std::string& entry) {
  return std::find(entries.begin(), entries.end(), entry) != entries.end();
}

TEST(RankEnvironment, HoldsTorchrunsVariables) {
  const RankPlace place = {.rank = 5,
                           .world_size = 8,
                           .local_rank = 1,
                           .local_world_size = 4,
                           .node_rank = 1,
                           .num_nodes = 2,
                           .master_addr = "node-a",
                           .master_port = 29500,
                           .restart_count = 2,
                           .max_restarts = 3,
                           .run_id = "job",
                           .notes = RankNotes::in("/tmp", 5)};
  const std::vector<std::string> made = rank_environment(place, {"PATH=/bin"});
  for (const char* entry :
       {"PATH=/bin", "RANK=5", "WORLD_SIZE=8", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=4", "GROUP_RANK=1",
        "GROUP_WORLD_SIZE=2", "ROLE_RANK=5", "ROLE_WORLD_SIZE=8", "MASTER_ADDR=node-a", "MASTER_PORT=29500",
        "TORCHELASTIC_RESTART_COUNT=2", "TORCHELASTIC_MAX_RESTARTS=3", "TORCHELASTIC_RUN_ID=job",
        "TANDEM_LOST_PEER_FILE=/tmp/rank-5.lost_peer", "TANDEM_FINAL_FILE=/tmp/rank-5.final",
        "TANDEM_INTERRUPTED_FILE=/tmp/rank-5.interrupted", "TORCHELASTIC_ERROR_FILE=/tmp/rank-5.error.json"})
    EXPECT_TRUE(contains(made, entry)) << entry;
}

TEST(RankEnvironment, ReplacesWhatTheLauncherItselfWasGiven) {
  const std::vector<std::string> made = rank_environment({.rank = 1}, {"RANK=7", "RANKING=8", "RANK=9"});
  EXPECT_FALSE(contains(made, "RANK=7"));
  EXPECT_FALSE(contains(made, "RANK=9"));
  EXPECT_TRUE(contains(made, "RANK=1"));
  EXPECT_TRUE(contains(made, "RANKING=8"));
}

TEST(RankEnvironment, HandsTheSecretDown) {
  const Secret secret = Secret::random();
  const std::vector<std::string> made = rank_environment({.secret = secret}, {"TANDEM_SECRET=0"});
  EXPECT_TRUE(contains(made, "TANDEM_SECRET=" + secret.to_hex()));
  EXPECT_FALSE(contains(made, "TANDEM_SECRET=0"));
  EXPECT_FALSE(contains(made, "TANDEM_INSECURE=1"));
  EXPECT_TRUE(contains(rank_environment({}, {}), "TANDEM_INSECURE=1"));
}

TEST(RankEnvironment, AVirtualLocalRankSeesItsOwnDeviceAlone) {
  const RankPlace place = {.rank = 3, .local_rank = 1, .role = "trainer", .virtual_local_rank = true};
  EXPECT_TRUE(contains(rank_environment(place, {}), "CUDA_VISIBLE_DEVICES=1"));
  const std::vector<std::string> made = rank_environment(place, {"CUDA_VISIBLE_DEVICES=4,GPU-7"});
  EXPECT_TRUE(contains(made, "CUDA_VISIBLE_DEVICES=GPU-7"));
  EXPECT_TRUE(contains(made, "LOCAL_RANK=0"));
  EXPECT_TRUE(contains(made, "ROLE_NAME=trainer"));
  EXPECT_THROW(rank_environment(place, {"CUDA_VISIBLE_DEVICES=4"}), ConfigError);
}

TEST(RankEnvironment, SeveralRanksOnANodeGetOneThreadEachUnlessTold) {
  EXPECT_TRUE(contains(rank_environment({.local_world_size = 2}, {}), "OMP_NUM_THREADS=1"));
  EXPECT_FALSE(contains(rank_environment({.local_world_size = 1}, {}), "OMP_NUM_THREADS=1"));
  EXPECT_FALSE(
      contains(rank_environment({.local_world_size = 2}, {"OMP_NUM_THREADS=4"}), "OMP_NUM_THREADS=1"));
}

}  // namespace
}  // namespace tandem
