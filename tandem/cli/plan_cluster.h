// `tandem plan --cluster`: the step on machines that are elsewhere.
#pragma once

#include "tandem/cli/command.h"
#include "tandem/plan/money.h"
#include "tandem/plan/time_plan.h"

namespace tandem::cli {

struct ClusterFlags {
  std::vector<std::string> clusters;  // none: this machine
  std::string trace;
  std::string tokens, budget, deadline, providers, prices;
  bool search = false;
  int max_gpus = 0;
  std::string out;

  void add_to(CLI::App& command);
  bool is_set() const { return search || !clusters.empty(); }
};

// Steps of the config, or as many as --tokens take.
double steps_of(const ClusterFlags& flags, const Config& config);

// Who lends such machines, cheapest first, with the step's time on each kind of network.
std::vector<plan::Offer> offers_of(const plan::CompiledRanks& ranks, const plan::TimePlan& made,
                                   const plan::Job& job, const std::vector<plan::Price>& prices);

ExitCode plan_on_cluster(const ClusterFlags& flags, ConfigFlags config, bool json, const Action& action);

}  // namespace tandem::cli
