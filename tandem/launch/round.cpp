#include "tandem/launch/round.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "tandem/base/clipped.h"
#include "tandem/base/error.h"

namespace tandem {
namespace {

// What a launcher wrote; a store may hold what another program did.
class Record {
 public:
  explicit Record(const std::string& text)
      : text_(text), record_(nlohmann::json::parse(text, nullptr, false)) {
    if (!record_.is_object()) refuse();
  }
  std::string text(const char* key) const {
    const auto found = record_.find(key);
    if (found == record_.end()) return "";
    if (!found->is_string()) refuse();
    return found->get<std::string>();
  }
  int number(const char* key, int otherwise, int least, int most = std::numeric_limits<int>::max()) const {
    const auto found = record_.find(key);
    if (found == record_.end()) return otherwise;
    if (!found->is_number_integer() || *found < least || *found > most) refuse();
    return found->get<int>();
  }

 private:
  [[noreturn]] void refuse() const {
    throw CommError("rendezvous: expected a record of a launcher, found '{}'; use another --rdzv-id",
                    clipped(text_));
  }
  const std::string& text_;
  const nlohmann::json record_;
};

constexpr int kMostRanks = 4096;  // of a node, as --nproc-per-node
constexpr int kMostRounds = 1 << 30;

int order_of(const NodeInfo& node) {
  if (node.given_rank >= 0) return node.given_rank;
  return node.previous_rank >= 0 ? node.previous_rank : std::numeric_limits<int>::max();
}

std::string range_text(const NodeInfo& node) {
  return node.least_nodes == node.most_nodes ? std::to_string(node.least_nodes)
                                             : fmt::format("{}:{}", node.least_nodes, node.most_nodes);
}

}  // namespace

std::string NodeInfo::to_text() const {
  return nlohmann::json{{"host", host},
                        {"address", address},
                        {"ranks", num_ranks},
                        {"most_ranks", most_ranks},
                        {"given", given_rank},
                        {"previous", previous_rank},
                        {"previous_round", previous_round},
                        {"previous_slot", previous_slot},
                        {"least", least_nodes},
                        {"most", most_nodes},
                        {"slot", slot}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

NodeInfo NodeInfo::from_text(const std::string& text) {
  const Record record(text);
  NodeInfo node;
  node.host = record.text("host");
  node.address = record.text("address");
  node.num_ranks = record.number("ranks", 1, 0, kMostRanks);
  node.most_ranks = record.number("most_ranks", node.num_ranks, 0, kMostRanks);
  node.given_rank = record.number("given", -1, -1);
  node.previous_rank = record.number("previous", -1, -1);
  node.previous_round = record.number("previous_round", -1, -1, kMostRounds);
  node.previous_slot = record.number("previous_slot", -1, -1);
  node.least_nodes = record.number("least", 1, 1);
  node.most_nodes = record.number("most", 1, 1);
  node.slot = record.number("slot", 0, 0);
  return node;
}

std::string RoundEnd::to_text() const {
  return nlohmann::json{{"kind", static_cast<int>(kind)},
                        {"code", code},
                        {"reason", reason},
                        {"restarts", restarts},
                        {"lost", lost},
                        {"lost_slot", lost_slot},
                        {"rank", rank},
                        {"returns", returns}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

RoundEnd RoundEnd::from_text(const std::string& text) {
  const Record record(text);
  constexpr int kLast = static_cast<int>(EndKind::Stale);
  return {static_cast<EndKind>(record.number("kind", kLast, 0, kLast)),
          record.number("code", 1, 0, 255),
          record.text("reason"),
          record.number("restarts", 0, 0, kMostRounds),
          record.number("lost", 0, 0),
          record.number("rank", -1, -1),
          record.number("returns", 0, 0, kMostRounds),
          record.number("lost_slot", -1, -1)};
}

int Round::first_rank() const {
  return std::accumulate(nodes.begin(), nodes.begin() + node_rank, 0,
                         [](int sum, const NodeInfo& node) { return sum + node.num_ranks; });
}

int Round::world_size() const {
  return std::accumulate(nodes.begin(), nodes.end(), 0,
                         [](int sum, const NodeInfo& node) { return sum + node.num_ranks; });
}

std::vector<NodeInfo> order_nodes(std::vector<NodeInfo> nodes) {
  std::sort(nodes.begin(), nodes.end(), [](const NodeInfo& a, const NodeInfo& b) {
    return std::pair(order_of(a), a.slot) < std::pair(order_of(b), b.slot);
  });
  for (size_t i = 1; i < nodes.size(); ++i) {
    const NodeInfo &a = nodes[i - 1], &b = nodes[i];
    if (a.given_rank >= 0 && a.given_rank == b.given_rank)
      throw ConfigError("--node-rank {}: given to two nodes, {} and {}; give each its own", a.given_rank,
                        a.host, b.host);
    if (a.least_nodes != b.least_nodes || a.most_nodes != b.most_nodes)
      throw ConfigError("--nnodes: must be the same on all nodes, found {} on {} and {} on {}", range_text(a),
                        a.host, range_text(b), b.host);
  }
  return nodes;
}

void share_out(std::vector<NodeInfo>& nodes, int unit) {
  const auto total = [&] {
    return std::accumulate(nodes.begin(), nodes.end(), 0,
                           [](int sum, const NodeInfo& node) { return sum + node.num_ranks; });
  };
  if (total() < unit) {
    for (NodeInfo& node : nodes) node.num_ranks = node.most_ranks;
  }
  int too_many = total() % unit;
  if (too_many == total()) return;  // they say themselves what they lack
  for (auto node = nodes.rbegin(); node != nodes.rend() && too_many > 0; ++node) {
    const int fewer = std::min(too_many, node->num_ranks);
    node->num_ranks -= fewer;
    too_many -= fewer;
  }
}

}  // namespace tandem
