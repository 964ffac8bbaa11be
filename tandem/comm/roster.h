// Who is there: the ranks of a world tell each other, through the tcp store, where they run and what they
// believe the world to be.
#pragma once

#include <vector>

#include "tandem/comm/connect.h"
#include "tandem/comm/key_store/tcp_key_store.h"

namespace tandem {

struct Member {
  int rank = 0;
  int world_size = 1;
  std::string mesh;      // "data 2 x tensor 1 x pipeline 1"
  std::string host_key;  // equal for processes that can share memory
  std::string hostname;
  int64_t pid = 0;
  std::string address;         // by which it reaches the store, and others reach it
  std::string master_address;  // by which it reaches rank 0

  std::string name() const;  // "rank 5 (node-b, pid 812)"
};

Member this_member(const WorldInfo& world, const MeshPosition& position, const TcpKeyStore& store);

// All members, once all are there and agree about the world; else the same CommError on every rank, which
// tells of the whole connect_timeout though only `left` of it is waited for here.
std::vector<Member> gather_roster(TcpKeyStore& store, const std::string& prefix, const Member& own,
                                  std::chrono::milliseconds left, const ConnectOptions& options);

// The address at which ranks of other hosts reach this member: a loopback address is replaced by the one by
// which they reach the master.
std::string reachable_address(const Member& member, const std::vector<Member>& roster);

}  // namespace tandem
