// `tandem plan --cluster`: the step on machines that are elsewhere.
#pragma once

#include "tandem/cli/command.h"

namespace tandem::cli {

struct ClusterFlags {
  std::string cluster;  // empty: this machine
  std::string trace;
  std::string tokens, budget, deadline, providers, prices;

  void add_to(CLI::App& command);
  bool is_set() const { return !cluster.empty(); }
};

ExitCode plan_on_cluster(const ClusterFlags& flags, ConfigFlags config, bool json, const Action& action);

}  // namespace tandem::cli
