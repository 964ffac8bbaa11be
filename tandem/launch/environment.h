// torchrun's contract, and a few variables of our own: what a rank finds in its environment.
#pragma once

#include <string>
#include <vector>

#include "tandem/comm/secret.h"
#include "tandem/launch/rank_notes.h"

namespace tandem {

struct RankPlace {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  int node_rank = 0;
  int num_nodes = 1;
  std::string master_addr = "127.0.0.1";
  int master_port = 0;
  int restart_count = 0;
  int max_restarts = 0;
  std::string run_id = "none";
  Secret secret = {};
  std::string role = "default";
  bool virtual_local_rank = false;  // LOCAL_RANK is 0, and the rank's GPU the only one it can see
  RankNotes notes = {};
  std::string kept = {};  // the ticket of the memory that the launcher keeps for ranks
  std::string page = {};  // the ticket of the memory in which it says what it does; empty: nobody looks
};

// `inherited` ("NAME=value" each) with the rank's variables in place of any that were there.
std::vector<std::string> rank_environment(const RankPlace& place, const std::vector<std::string>& inherited);

std::vector<std::string> own_environment();

}  // namespace tandem
