// A run to be started elsewhere: what every kind of cluster is told of it.
#pragma once

#include <string>
#include <vector>

namespace tandem::cluster {

struct Job {
  std::string name;
  std::string config;                  // the file, as the nodes see it
  std::vector<std::string> arguments;  // of `tandem train`, after the config
  std::vector<std::string> words;      // of `program`, in place of a training
  std::string program = "tandem";      // on the nodes
  int nodes = 1;
  int ranks_per_node = 1;
  int gpus_per_node = 0;
  int cpus_per_node = 0;        // 0: what the cluster gives
  std::string memory_per_node;  // empty: what the cluster gives
  int max_restarts = 3;         // of ranks that fail, by the launcher
  int grace_s = 120;            // to save before a node is taken away
};

}  // namespace tandem::cluster
