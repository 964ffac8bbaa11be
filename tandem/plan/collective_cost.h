// What a collective takes: a start, and bytes over the slowest link on the way.
//
// Within a node NCCL goes round in rings at a measured bus bandwidth, or adds up inside the switch where
// there is one that can. Between nodes all GPUs of a node share its network, and every node on the way adds a
// hop. A collective is cut into chunks that follow each other, so that its time is not just the sum of start
// and transfer: with the best size of chunks, start a and transfer V take a + 2 k sqrt(a V) + V, k up to 1.
#pragma once

#include "tandem/base/mesh.h"
#include "tandem/ir/op.h"
#include "tandem/plan/cluster.h"

namespace tandem::plan {

// The ranks of a mesh axis, and how many of them share a node.
struct Group {
  int size = 1;
  int per_node = 1;
  int nodes() const { return (size + per_node - 1) / per_node; }
};
Group group_of(const MeshShape& mesh, Axis axis, int gpus_per_node);

// `payload`: bytes of the whole tensor: what an all-gather gives, a reduce-scatter takes, an all-reduce adds.
// From the model alone, or where such collectives were measured, by what they took (collective_curves.h).
double modelled_seconds(const Cluster& cluster, Op op, const Group& group, double payload);
double collective_seconds(const Cluster& cluster, Op op, const Group& group, double payload);

// From one rank to another `distance` ranks away.
double modelled_send_seconds(const Cluster& cluster, int distance, double bytes);
double send_seconds(const Cluster& cluster, int distance, double bytes);

}  // namespace tandem::plan
