// What the launchers of several nodes agree on for one attempt (a round), as values. Rendezvous writes and
// reads them.
#pragma once

#include <string>
#include <vector>

namespace tandem {

// What a node says about itself when it joins.
struct NodeInfo {
  std::string host;
  std::string address;     // where the other nodes reach it
  int num_ranks = 1;       // that it has for the next attempt
  int most_ranks = 1;      // ... when none is lost
  int given_rank = -1;     // --node-rank
  int previous_rank = -1;  // in the attempt before, which was
  int previous_round = -1;
  int previous_slot = -1;
  int least_nodes = 1;
  int most_nodes = 1;
  int slot = 0;  // in order of joining

  std::string to_text() const;
  static NodeInfo from_text(const std::string& text);
};

struct Round {
  int number = 0;
  int restarts = 0;             // how many attempts of this launch came before
  int returns = 0;              // ... of which so many ended for others to join, and not for a failure
  std::vector<NodeInfo> nodes;  // by node rank
  int node_rank = 0;            // of this node
  std::string master_addr = "127.0.0.1";
  int master_port = 0;

  const NodeInfo& own() const { return nodes[static_cast<size_t>(node_rank)]; }
  int first_rank() const;  // of this node
  int world_size() const;
  int failures() const { return restarts - returns; }
};

// Stale: the round was left behind by launchers that are gone; the next one begins afresh.
enum class EndKind { Done, Stop, Restart, Stale };

struct RoundEnd {
  EndKind kind = EndKind::Done;
  int code = 0;        // the launcher's exit code, for Stop
  std::string reason;  // what failed, in one line; may be empty
  int restarts = 0;    // how many attempts of this launch come before the next round
  int lost = 0;        // nodes that will not come back for it
  int rank = -1;       // whose failure it is, or who was interrupted; -1 where it is no rank
  int returns = 0;     // as in Round, for the next one
  int lost_slot = -1;  // where one of the lost nodes was

  std::string to_text() const;
  static RoundEnd from_text(const std::string& text);
};

// Numbers the nodes: by --node-rank where given, then as in the attempt before, then in order of joining.
// Throws ConfigError where two were given the same rank or do not agree on --nnodes.
std::vector<NodeInfo> order_nodes(std::vector<NodeInfo> nodes);

// Elastic ranks: as many as these nodes have, in multiples of `unit`; the last nodes have fewer for it, or
// none. Where they have lost so many that not one multiple is left, all ranks are tried again.
void share_out(std::vector<NodeInfo>& nodes, int unit);

}  // namespace tandem
