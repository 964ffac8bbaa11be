#include "tandem/cli/plan_cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "tandem/base/quantity.h"
#include "tandem/base/thread_pool.h"
#include "tandem/plan/money.h"
#include "tandem/plan/time_plan.h"
#include "tandem/plan/time_report.h"

namespace tandem::cli {

void ClusterFlags::add_to(CLI::App& command) {
  command
      .add_option(
          "--cluster", clusters,
          "plan for these machines instead: an instance type (p5.48xlarge) or a GPU (h100-sxm) of the "
          "catalogue and how many GPUs, or a YAML file; with --search it may be repeated")
      ->type_name("NAME[:COUNT]|FILE")
      ->expected(1)
      ->take_all();
  command.add_flag("--search", search,
                   "find the fastest strategy, mesh, schedule, micro-batch, recomputation, offload and "
                   "precision that fit, for the keys that the config leaves open");
  command.add_option("--max-gpus", max_gpus, "with --search: try powers of two up to so many GPUs")
      ->check(whole_number(1, int64_t{1} << 20))
      ->type_name("N");
  command.add_option("--out", out, "with --search: write the best config, ready to run")->type_name("CONFIG");
  const auto text = [&command](const char* flag, std::string& value, const char* what, const char* type) {
    command.add_option(flag, value, what)->type_name(type);
  };
  text("--tokens", tokens, "with --cluster: hours and dollars for so many tokens; train.steps otherwise",
       "20B");
  text("--budget", budget, "leave out what costs more", "2000USD");
  text("--deadline", deadline, "leave out what takes longer", "48h");
  text("--providers", providers, "clouds to ask, such as aws,gcp,lambda", "A,B");
  text("--prices", prices, "prices of your own, a CSV file with the columns of the catalogue's prices.csv",
       "FILE");
  command.add_option("--trace", trace, "with --cluster: write the simulated timeline, for ui.perfetto.dev")
      ->type_name("FILE");
}

double steps_of(const ClusterFlags& flags, const Config& config) {
  if (flags.tokens.empty()) return static_cast<double>(config.train.steps);
  const double tokens = plan::parse_amount(flags.tokens, "--tokens");
  const double of_step = static_cast<double>(config.train.batch) *
                         (config.model.is_language_model() ? static_cast<double>(config.model.context) : 1);
  return std::max(1.0, std::ceil(tokens / of_step));
}

std::vector<plan::Offer> offers_of(const plan::CompiledRanks& ranks, const plan::TimePlan& made,
                                   const plan::Job& job, const std::vector<plan::Price>& prices) {
  std::map<std::pair<int, double>, double> known;  // step by nodes and network
  const auto step_on = [&](const plan::Cluster& cluster) {
    const auto key = std::make_pair(cluster.gpus_per_node, cluster.network + cluster.hop);
    const auto [it, is_new] = known.try_emplace(key, 0.0);
    if (is_new) it->second = ranks.on(cluster).step_s;
    return it->second;
  };
  return plan::offers(made, prices, job, step_on);
}

ExitCode plan_on_cluster(const ClusterFlags& flags, ConfigFlags config_flags, bool json,
                         const Action& action) {
  if (flags.clusters.size() > 1)
    throw ConfigError("--cluster {}: one plan is for one cluster; add --search to compare several",
                      flags.clusters[1]);
  if (flags.max_gpus > 0 || !flags.out.empty())
    throw ConfigError("{}: goes with --search", flags.out.empty() ? "--max-gpus" : "--out");
  const plan::Cluster cluster = plan::find_cluster(flags.clusters[0]);
  const std::string device = cluster.is_cpu() ? "cpu" : "cuda";
  if (!config_flags.device.empty() && config_flags.device != device)
    throw ConfigError("--device {}: the machines of --cluster {} have {}; leave it out", config_flags.device,
                      flags.clusters[0], cluster.is_cpu() ? "no GPUs" : "GPUs");
  config_flags.device = device;
  const WorldInfo world = read_world();
  const Config config = config_flags.load(world).config;
  const Backend backend = plan::backend_on(cluster, make_backend(config, world));
  plan::PlanOptions options;
  options.model = action.model;
  options.threads = num_cores();
  std::optional<plan::TimelineTrace> trace;
  if (!flags.trace.empty()) {
    trace.emplace(flags.trace);
    options.observe = [&trace](int stage, const plan::Item& item, double begin, double end) {
      if (trace) trace->add(stage, item, begin, end);
    };
  }
  const std::vector<plan::Price> prices = plan::read_prices(flags.prices);
  const plan::Job job{steps_of(flags, config), plan::parse_providers(flags.providers, prices)};
  plan::TimePlan made;
  std::vector<plan::Offer> offers;
  {
    const plan::CompiledRanks ranks(config, backend, cluster, options);
    made = ranks.on(cluster);
    if (trace) trace->finish(static_cast<int>(made.ranks.size()));
    trace.reset();
    const double budget = flags.budget.empty() ? 0 : plan::parse_dollars(flags.budget, "--budget");
    const double deadline = flags.deadline.empty() ? 0 : plan::parse_time(flags.deadline, "--deadline");
    offers = plan::within(offers_of(ranks, made, job, prices), budget, deadline);
  }
  if (json) {
    nlohmann::json all = plan::to_json(made);
    all["steps"] = job.steps;
    all["offers"] = plan::to_json(offers);
    std::printf("%s\n", all.dump(1).c_str());
  } else {
    std::printf("%s%s", plan::print(made, config).c_str(), plan::print(offers, job).c_str());
  }
  std::fflush(stdout);
  if (!plan::fits(made) && !plan::fits_device(made))
    throw PlanError(
        "memory: the plan needs {} a GPU but {} has {}; use --search, or more of memory.recompute, "
        "parallel.strategy=fsdp, parallel.tensor or parallel.pipeline",
        format_bytes(made.memory_bytes), cluster.gpu.name,
        format_bytes(static_cast<int64_t>(cluster.gpu.memory_bytes)));
  if (!plan::fits(made))
    throw PlanError(
        "memory: the plan needs {} of a node's own memory but {} has {}; use less of memory.offload, more "
        "nodes, or machines with more of it",
        format_bytes(plan::node_bytes(made)), cluster.name,
        format_bytes(static_cast<int64_t>(cluster.host_memory)));
  return ExitCode::Done;
}

}  // namespace tandem::cli
