// What is known of GPUs and of the machines that clouds lend: the tables of catalogue/, which are built into
// the program. Every row has its source and date.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::plan {

struct Gpu {
  std::string name;  // "h100-sxm"
  std::string also;  // "H100-80-SXM", as published tables say
  std::string arch;  // "hopper"
  double capability = 0;
  double memory_bytes = 0;      // that a plan may use
  double memory_bandwidth = 0;  // bytes/s, the vendor's
  double peak = 0;              // bf16 FLOP/s, the vendor's: what MFU is measured by
  double matmul = 0;            // bf16 FLOP/s that real products reach
  double matmul_fp8 = 0;        // 0: it has none
  double matmul_fp32 = 0;
  bool measured = false;  // `matmul` was, on this GPU
  int sms = 0;
  std::map<int, double> ring;  // bus bandwidth of rings in a node, bytes/s, by the number of GPUs
  double in_switch = 0;        // payload bytes/s of all-reduces inside the switch; 0: none
  double link_latency = 0;     // s, of a collective of eight
  double chunking = 0;         // how badly start and transfer overlap, 0 to 1 (collective_cost.h)
  double pcie = 0;             // bytes/s, one way
  int node_gpus = 8;           // of a usual machine
  double node_network = 0;     // bytes/s
};

struct NodeType {
  std::string name;  // "p5.48xlarge"
  std::string provider;
  std::string gpu;
  int gpus = 8;
  int cores = 0;         // vCPUs; 0: not known
  double ram_bytes = 0;  // 0: not known
  double network = 0;    // bytes/s of all interfaces; 0: nodes are not joined
  double hop = 0;        // s that each node adds to a collective
  double chunking = 0;   // between nodes
  std::string fabric;
  std::string date;
};

struct Catalogue {
  std::vector<Gpu> gpus;
  std::vector<NodeType> nodes;

  const Gpu* find_gpu(std::string_view name) const;  // by either name; case does not count
  const NodeType* find_node(std::string_view name) const;
};

const Catalogue& catalogue();

// The text of a table: "gpus.csv".
std::string catalogue_file(std::string_view name);

bool same_name(std::string_view a, std::string_view b);  // case does not count

}  // namespace tandem::plan
