#include "tandem/plan/collective_cost.h"

#include <algorithm>
#include <cmath>

#include "tandem/base/error.h"

namespace tandem::plan {
namespace {

constexpr double kNetworkShare = 0.93;  // of a network's rate that payload reaches
constexpr int kInSwitchFrom = 5;        // ranks from which NCCL adds up in the switch
constexpr double kSendStart = 12e-6;    // s, of a send
constexpr double kFirstShare = 0.4;     // of the start of eight that two already have

double ring_bandwidth(const Gpu& gpu, int ranks) {
  auto it = gpu.ring.upper_bound(ranks);
  TANDEM_CHECK(it != gpu.ring.begin(), "{} has no link for {} GPUs", gpu.name, ranks);
  return (--it)->second;
}

// Start and transfer of one way: the other half of an all-reduce is the same again.
struct Leg {
  double start = 0;
  double transfer = 0;
};

double with_chunks(const Leg& leg, double chunking) {
  return leg.start + 2 * chunking * std::sqrt(leg.start * leg.transfer) + leg.transfer;
}

// Grows with the ranks that a ring has to go round.
double start_within(const Gpu& gpu, int ranks) {
  if (ranks < 2) return 0;
  return gpu.link_latency * (kFirstShare + (1 - kFirstShare) * (ranks - 2) / 6.0);
}

double network_of(const Cluster& cluster, const Group& group) {
  if (cluster.network <= 0)
    throw ConfigError(
        "--cluster {}: its nodes are not joined by a network, so that a mesh may have at most {} "
        "ranks; use an instance type with one",
        cluster.name, cluster.gpus_per_node);
  return cluster.network * kNetworkShare * group.per_node / cluster.gpus_per_node;
}

double all_reduce_seconds(const Cluster& cluster, const Group& group, double payload) {
  const int nodes = group.nodes(), here = std::min(group.per_node, group.size);
  const bool in_switch = cluster.gpu.in_switch > 0 && here >= kInSwitchFrom;
  Leg leg{start_within(cluster.gpu, here), 0};
  if (here > 1) {
    leg.transfer = in_switch ? payload / cluster.gpu.in_switch
                             : 2 * payload * (here - 1) / here / ring_bandwidth(cluster.gpu, here);
  }
  if (nodes == 1) return with_chunks(leg, cluster.gpu.chunking);
  const double network = network_of(cluster, group);
  // Two nodes send each other all of it once; more of them, round a ring or up and down a tree, twice.
  const double between = payload * (nodes == 2 ? 1 : 2) / network;
  const double steps_of_tree = 2 * std::ceil(std::log2(nodes));
  const Leg ring{leg.start + 2 * (nodes - 1) * cluster.hop, std::max(leg.transfer, between)};
  const Leg tree{leg.start + steps_of_tree * cluster.hop, std::max(leg.transfer, 1.1 * between)};
  return std::min(with_chunks(ring, cluster.chunking), with_chunks(tree, cluster.chunking));
}

// An all-gather or a reduce-scatter: rings only.
double one_way_seconds(const Cluster& cluster, const Group& group, double payload) {
  const int nodes = group.nodes(), here = std::min(group.per_node, group.size);
  Leg leg{start_within(cluster.gpu, here) / 2, 0};
  if (here > 1) leg.transfer = payload * (group.size - 1) / group.size / ring_bandwidth(cluster.gpu, here);
  if (nodes == 1) return with_chunks(leg, cluster.gpu.chunking);
  leg.start += (nodes - 1) * cluster.hop;
  leg.transfer = std::max(leg.transfer, payload * (nodes - 1) / nodes / network_of(cluster, group));
  return with_chunks(leg, cluster.chunking);
}

}  // namespace

Group group_of(const MeshShape& mesh, Axis axis, int gpus_per_node) {
  const int stride = axis == Axis::Data ? mesh.tensor : axis == Axis::Pipeline ? mesh.tensor * mesh.data : 1;
  const int size = mesh.size(axis);
  return {size, std::clamp(gpus_per_node / stride, 1, size)};
}

double modelled_seconds(const Cluster& cluster, Op op, const Group& group, double payload) {
  if (group.size < 2) return 0;
  return op == Op::AllReduce ? all_reduce_seconds(cluster, group, payload)
                             : one_way_seconds(cluster, group, payload);
}

double collective_seconds(const Cluster& cluster, Op op, const Group& group, double payload) {
  const double modelled = modelled_seconds(cluster, op, group, payload);
  const bool fills_nodes = group.nodes() == 1 || group.per_node == cluster.gpus_per_node;
  const auto curve = cluster.curves.find({op, group.size});
  return curve == cluster.curves.end() || !fills_nodes ? modelled : modelled * curve->second.at(payload);
}

double send_seconds(const Cluster& cluster, int distance, double bytes) {
  const double modelled = modelled_send_seconds(cluster, distance, bytes);
  const auto curve = cluster.curves.find({Op::Send, 2});
  const bool within = distance < cluster.gpus_per_node;
  return curve == cluster.curves.end() || !within ? modelled : modelled * curve->second.at(bytes);
}

double modelled_send_seconds(const Cluster& cluster, int distance, double bytes) {
  if (distance < cluster.gpus_per_node) return kSendStart + bytes / ring_bandwidth(cluster.gpu, 2);
  return kSendStart + cluster.hop / 2 + bytes / network_of(cluster, {2, 1});
}

}  // namespace tandem::plan
