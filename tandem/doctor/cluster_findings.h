// What is wrong between nodes: links that are slower than the others, clocks that differ, machines that are
// not alike.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tandem/doctor/findings.h"
#include "tandem/doctor/links.h"

namespace tandem::doctor {

struct ClusterNode {
  int rank = 0;              // its first
  std::string name;          // unique among the nodes: with its address where names are not
  std::string address;       // by which the others reach it
  std::string node_json;     // to_json(Node)
  std::string finding_json;  // to_json(findings)
};

struct Cluster {
  std::vector<ClusterNode> nodes;
  LinkTable links;  // by nodes
};

struct SlowLink {
  int from = 0, to = 0;
  double bytes_per_s = 0, usual = 0;
};

// What most links reach: a quarter of them is faster. With the best of few links a node that is slow
// altogether cannot hide by being at the end of most of them.
double usual_rate(const LinkTable& links);
std::vector<SlowLink> slow_links(const LinkTable& links);  // less than half of the usual; slowest first

std::vector<Finding> find_problems(const Cluster& cluster);  // between nodes, not within them
nlohmann::ordered_json to_json(const Cluster& cluster);
std::string cluster_text(const Cluster& cluster);  // nodes, and both tables

}  // namespace tandem::doctor
