#include "tandem/cli/plan_search.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/thread_pool.h"
#include "tandem/config/mesh.h"
#include "tandem/config/print.h"
#include "tandem/plan/search.h"
#include "tandem/plan/search_report.h"

namespace tandem::cli {
namespace {

constexpr size_t kShown = 10;
constexpr size_t kOfEach = 3;  // of each cluster, where there are several

// A line on stderr that says how far it is: rewritten on a terminal, now and then elsewhere.
class Progress {
 public:
  void show(const plan::Cluster& cluster, size_t compiled, double best_s) {
    const auto now = std::chrono::steady_clock::now();
    if (now < next_) return;
    next_ = now + (terminal_ ? std::chrono::milliseconds(300) : std::chrono::seconds(10));
    const std::string best = best_s < 1e9 ? fmt::format(", best so far {:.1f} ms", best_s * 1e3) : "";
    std::fprintf(stderr, "%s%d x %s: %zu ways compiled%s%s", terminal_ ? "\r\x1b[K" : "", cluster.gpus,
                 cluster.name.c_str(), compiled, best.c_str(), terminal_ ? "" : "\n");
    shown_ = terminal_;
  }
  void clear() {
    if (shown_) std::fprintf(stderr, "\r\x1b[K");
    shown_ = false;
  }

 private:
  const bool terminal_ = ::isatty(STDERR_FILENO) != 0;
  std::chrono::steady_clock::time_point next_ =
      std::chrono::steady_clock::now() + std::chrono::seconds(terminal_ ? 1 : 10);
  bool shown_ = false;
};

// 1, 2, 4, ... as far as machines of this kind can be joined, and the most itself.
std::vector<int> gpu_counts(const plan::Cluster& cluster, int most) {
  if (cluster.network <= 0) most = std::min(most, cluster.gpus_per_node);
  std::vector<int> counts;
  for (int count = 1; count <= most; count *= 2) counts.push_back(count);
  if (counts.back() != most && (most < cluster.gpus_per_node || most % cluster.gpus_per_node == 0))
    counts.push_back(most);
  return counts;
}

// GPUs that the providers lend.
std::vector<std::string> lent_gpus(const std::vector<plan::Price>& prices,
                                   const std::vector<std::string>& providers) {
  std::set<std::string> names;
  for (const plan::Price& price : prices) {
    const bool wanted =
        providers.empty() || std::find(providers.begin(), providers.end(), price.provider) != providers.end();
    if (!wanted) continue;
    if (const plan::Gpu* gpu = plan::catalogue().find_gpu(price.gpu)) names.insert(gpu->name);
  }
  return {names.begin(), names.end()};
}

// The machines to search on, each with its number of GPUs.
std::vector<plan::Cluster> targets(const ClusterFlags& flags, const Config& config,
                                   const std::vector<std::string>& lent) {
  std::vector<plan::Cluster> list;
  if (flags.clusters.empty() && flags.max_gpus == 0)
    throw ConfigError(
        "--search: on how many GPUs? Add --cluster NAME:COUNT, such as h100-sxm:64, or --max-gpus N");
  for (const std::string& name : flags.clusters.empty() ? lent : flags.clusters) {
    plan::Cluster cluster = plan::find_cluster(name);
    std::vector<int> counts = {cluster.gpus};
    if (cluster.gpus == 0 && flags.max_gpus > 0) {
      counts = gpu_counts(cluster, flags.max_gpus);
    } else if (cluster.gpus == 0) {
      counts = {mesh_shape(config).world()};
      if (counts[0] == 1)
        throw ConfigError("--cluster {}: on how many GPUs? Use {}:COUNT, or add --max-gpus N", name, name);
    } else if (flags.max_gpus > 0 && cluster.gpus > flags.max_gpus) {
      throw ConfigError("--max-gpus {}: --cluster {} has more; leave one of them out", flags.max_gpus, name);
    }
    for (const int count : counts) {
      cluster.gpus = count;
      list.push_back(cluster);
    }
  }
  return list;
}

// What the choices would have needed where none meets the budget and the deadline.
[[noreturn]] void refuse(const std::vector<plan::Choice>& choices, double budget, double deadline) {
  std::vector<plan::Offer> all;
  for (const plan::Choice& choice : choices)
    all.insert(all.end(), choice.offers.begin(), choice.offers.end());
  if (all.empty())
    throw ConfigError(
        "--budget, --deadline: no provider of the price list has these GPUs; use --prices FILE");
  plan::within(all, budget, deadline);  // says what would be needed
  throw ConfigError("--budget, --deadline: no way meets both");
}

class Searching {
 public:
  Searching(const ClusterFlags& flags, const ResolvedConfig& given, const Backend& backend,
            const Action& action)
      : flags_(flags), given_(given), backend_(backend), action_(action) {
    prices_ = plan::read_prices(flags.prices);
    job_ = {steps_of(flags, given.config), plan::parse_providers(flags.providers, prices_)};
    budget_ = flags.budget.empty() ? 0 : plan::parse_dollars(flags.budget, "--budget");
    deadline_ = flags.deadline.empty() ? 0 : plan::parse_time(flags.deadline, "--deadline");
  }

  const plan::Job& job() const { return job_; }
  const plan::Totals& totals() const { return totals_; }

  std::vector<plan::Choice> run() {
    const std::vector<plan::Cluster> list =
        targets(flags_, given_.config, lent_gpus(prices_, job_.providers));
    std::vector<plan::Choice> choices;
    std::optional<PlanError> too_large;
    std::optional<ConfigError> no_mesh;
    for (const plan::Cluster& cluster : list) {
      try {
        for (plan::Choice& choice : search_on(cluster, list.size() > 1 ? kOfEach : kShown))
          choices.push_back(std::move(choice));
      } catch (const PlanError& error) {
        too_large.emplace(error);
      } catch (const ConfigError& error) {
        no_mesh.emplace(error);
      }
    }
    progress_.clear();
    if (choices.empty() && too_large) throw PlanError(*too_large);
    if (choices.empty()) throw ConfigError(*no_mesh);
    return best_of(std::move(choices), list.size() > 1);
  }

 private:
  std::vector<plan::Choice> search_on(const plan::Cluster& cluster, size_t keep) {
    plan::SearchOptions options;
    options.model = action_.model;
    options.threads = num_cores();
    options.keep = keep;
    options.offers = [this](const plan::CompiledRanks& ranks, const plan::TimePlan& made, const Config&) {
      return offers_of(ranks, made, job_, prices_);
    };
    options.progress = [&](size_t compiled, double best_s) { progress_.show(cluster, compiled, best_s); };
    plan::SearchResult result = plan::search(given_, plan::backend_on(cluster, backend_), cluster, options);
    totals_.candidates += result.candidates;
    totals_.compiled += result.compiled;
    totals_.too_large += result.too_large;
    return std::move(result.choices);
  }

  // On one cluster, or within a budget, the fastest; on several, or with a deadline, the cheapest.
  std::vector<plan::Choice> best_of(std::vector<plan::Choice> choices, bool several) const {
    const bool bounded = budget_ > 0 || deadline_ > 0;
    const std::vector<plan::Choice> all = bounded ? choices : std::vector<plan::Choice>();
    for (plan::Choice& choice : choices) choice.offers = plan::affordable(choice.offers, budget_, deadline_);
    if (bounded) std::erase_if(choices, [](const plan::Choice& choice) { return choice.offers.empty(); });
    if (choices.empty()) refuse(all, budget_, deadline_);
    const bool by_money = deadline_ > 0 || (several && budget_ <= 0);
    const auto value = [&](const plan::Choice& choice) {
      if (!by_money) return choice.plan.step_s;
      return choice.offers.empty() ? 1e30 : plan::cheapest(choice.offers[0]);
    };
    std::stable_sort(choices.begin(), choices.end(),
                     [&](const plan::Choice& a, const plan::Choice& b) { return value(a) < value(b); });
    return choices;
  }

  const ClusterFlags& flags_;
  const ResolvedConfig& given_;
  const Backend& backend_;
  const Action& action_;
  std::vector<plan::Price> prices_;
  plan::Job job_;
  double budget_ = 0, deadline_ = 0;
  plan::Totals totals_;
  Progress progress_;
};

std::string launch_line(const plan::Choice& choice, const std::string& file) {
  const plan::Cluster& cluster = choice.plan.cluster;
  if (cluster.gpus == 1) return fmt::format("tandem train {}", file);
  const int nodes = cluster.nodes(), here = std::min(cluster.gpus, cluster.gpus_per_node);
  return fmt::format("tandem launch {}--nproc-per-node {} train {}",
                     nodes > 1 ? fmt::format("--nnodes {} ", nodes) : "", here, file);
}

// As flags, for those who write no file.
std::string flags_of(const plan::Choice& choice, const Config& given) {
  std::string text;
  const nlohmann::json changed = plan::changes(given, choice.config);
  for (const auto& [key, value] : changed.items())
    text += fmt::format(" --set {}={}", key, value.is_string() ? value.get<std::string>() : value.dump());
  return text;
}

}  // namespace

ExitCode plan_search(const ClusterFlags& flags, ConfigFlags config_flags, bool json, const Action& action) {
  if (!flags.trace.empty()) throw ConfigError("--trace: is of one plan; leave out --search");
  if (!config_flags.device.empty() && config_flags.device != "cuda")
    throw ConfigError("--device {}: --search is for machines with GPUs; leave it out", config_flags.device);
  config_flags.device = "cuda";
  const WorldInfo world = read_world();
  const ResolvedConfig given = config_flags.load(world);
  const Backend backend = make_backend(given.config, world);
  Searching searching(flags, given, backend, action);
  std::vector<plan::Choice> choices = searching.run();
  if (choices.size() > kShown) choices.resize(kShown);
  if (!flags.out.empty())
    write_atomically(flags.out,
                     fmt::format("# {}\n# on {} x {}: {:.1f} ms a step by `tandem plan --search`.\n# {}\n{}",
                                 plan::describe(choices[0]), choices[0].plan.cluster.gpus,
                                 choices[0].plan.cluster.name, choices[0].plan.step_s * 1e3,
                                 launch_line(choices[0], flags.out), to_yaml(choices[0].config)));
  if (json) {
    std::printf("%s\n",
                plan::to_json(choices, searching.totals(), searching.job(), given.config).dump(1).c_str());
  } else {
    std::printf("%s", plan::print(choices, searching.totals(), searching.job()).c_str());
    if (flags.out.empty()) {
      std::printf("\n  way 1:%s\n", flags_of(choices[0], given.config).c_str());
    } else {
      std::printf("\n  wrote %s: %s\n", flags.out.c_str(), launch_line(choices[0], flags.out).c_str());
    }
  }
  std::fflush(stdout);
  return ExitCode::Done;
}

}  // namespace tandem::cli
