#include "tandem/plan/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "tandem/base/error.h"
#include "tandem/base/quantity.h"
#include "tandem/compile/passes/recompute.h"
#include "tandem/config/validate.h"
#include "tandem/plan/estimate.h"
#include "tandem/plan/in_threads.h"

namespace tandem::plan {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr size_t kRound = 4;  // groups between two looks at what is best so far

struct Ranked {
  const Candidate* candidate;
  Estimate estimate;
};

// Candidates that differ only in what is computed again and what lies on the host, the fastest first.
struct Group {
  std::string family;
  std::vector<Ranked> members;
  double seconds() const { return members.front().estimate.seconds; }
};

// What became of a group.
struct Tried {
  std::optional<Choice> choice;  // the fastest that fits
  size_t compiled = 0, too_large = 0;
  double least_bytes = kNever;  // of those that do not fit
};

// How much is computed again.
int again(const Recompute& recompute) {
  switch (recompute.kind) {
    case RecomputeKind::None: return 0;
    case RecomputeKind::Selective: return 1;
    case RecomputeKind::Every: return 2;
    case RecomputeKind::AllButAttention: return 3;
    case RecomputeKind::Full:
    case RecomputeKind::Auto: return 4;
  }
  return 4;
}

// Whether `more` does all that `less` does to save memory.
bool saves_as_much(const Candidate& more, const Candidate& less) {
  return again(more.recompute) >= again(less.recompute) && more.offload.size() >= less.offload.size();
}

class Search {
 public:
  Search(const ResolvedConfig& given, const Backend& backend, const Cluster& cluster,
         const SearchOptions& options)
      : given_(given),
        backend_(backend),
        cluster_(cluster),
        options_(options),
        blocks_(num_blocks(options.model(given.config.model, 1))),
        space_(search_space(given, cluster, blocks_)) {}

  SearchResult run() {
    if (space_.empty())
      throw ConfigError(
          "--search: no mesh of {} suits the config: {} GPUs, train.batch {}, {} blocks and the keys that "
          "are "
          "fixed; fix fewer of them, or use another number of GPUs",
          cluster_.gpus, cluster_.gpus, given_.config.train.batch, blocks_);
    result_.candidates = space_.size();
    rank();
    size_t next = 0;
    while (next < groups_.size()) {
      const std::vector<size_t> round = next_round(next);
      std::vector<Tried> tried(round.size());
      const double worth = worst_kept();
      for_each_in_threads(0, round.size(), options_.threads,
                          [&](size_t i) { tried[i] = try_group(groups_[round[i]], worth); });
      for (size_t i = 0; i < round.size(); ++i) take(std::move(tried[i]), groups_[round[i]].family);
      if (options_.progress) options_.progress(result_.compiled, best());
    }
    return finish();
  }

 private:
  double limit() const {
    const double bytes = cluster_.gpu.memory_bytes;
    const auto fixed = static_cast<double>(given_.config.memory.limit);
    return fixed > 0 ? std::min(fixed, bytes) : bytes;
  }

  void rank() {
    const Estimator estimator(given_.config, backend_, cluster_, options_.model, space_, blocks_,
                              options_.threads);
    std::map<std::string, size_t> index;
    for (const Candidate& candidate : space_) {
      const Estimate estimate = options_.exhaustive ? Estimate{} : estimator.of(candidate);
      constexpr double kMemorySlack = 0.97;
      if (estimate.memory * kMemorySlack > limit()) {
        least_bytes_ = std::min(least_bytes_, estimate.memory);
        continue;
      }
      const std::string family = family_of(candidate);
      const auto [it, is_new] = index.try_emplace(
          fmt::format("{} {} {}", family, candidate.micro_batch, candidate.sync == GradientSync::Step),
          groups_.size());
      if (is_new) groups_.push_back({family, {}});
      groups_[it->second].members.push_back({&candidate, estimate});
    }
    for (Group& group : groups_) {
      std::stable_sort(group.members.begin(), group.members.end(), [](const Ranked& a, const Ranked& b) {
        return a.estimate.seconds < b.estimate.seconds;
      });
    }
    std::stable_sort(groups_.begin(), groups_.end(),
                     [](const Group& a, const Group& b) { return a.seconds() < b.seconds(); });
  }

  double best() const {
    double least = kNever;
    for (const auto& [family, choice] : found_) least = std::min(least, choice.plan.step_s);
    return least;
  }

  // The time of the slowest choice that is kept: what a further one has to be below.
  double worst_kept() const {
    if (found_.size() < options_.keep) return kNever;
    std::vector<double> times;
    for (const auto& [family, choice] : found_) times.push_back(choice.plan.step_s);
    std::nth_element(times.begin(), times.begin() + static_cast<long>(options_.keep) - 1, times.end());
    return times[options_.keep - 1];
  }

  // The next groups that may be among the best; `next` goes behind them.
  std::vector<size_t> next_round(size_t& next) const {
    std::vector<size_t> round;
    const double worst = worst_kept();
    for (; next < groups_.size() && round.size() < kRound; ++next) {
      const double at_best = groups_[next].seconds() * (1 - kSlack);
      if (at_best > worst) {
        next = groups_.size();  // and all after it
        break;
      }
      const auto own = found_.find(groups_[next].family);
      if (own != found_.end() && at_best > own->second.plan.step_s) continue;
      round.push_back(next);
    }
    return round;
  }

  Tried try_group(const Group& group, double worth) const {
    Tried tried;
    std::vector<const Candidate*> fitting;
    for (const Ranked& member : group.members) {
      const double most = tried.choice ? std::min(worth, tried.choice->plan.step_s) : worth;
      if (member.estimate.seconds * (1 - kSlack) > most) break;
      const bool needless =
          !options_.exhaustive && std::any_of(fitting.begin(), fitting.end(), [&](const Candidate* less) {
            return saves_as_much(*member.candidate, *less);
          });
      if (needless) continue;
      if (try_one(*member.candidate, worth, tried)) fitting.push_back(member.candidate);
    }
    return tried;
  }

  // Whether it fits.
  bool try_one(const Candidate& candidate, double worth, Tried& tried) const {
    ResolvedConfig resolved = given_;
    resolved.config = with(given_.config, candidate);
    try {
      validate(resolved);
      PlanOptions options;
      options.model = options_.model;
      options.alike_once = true;
      options.only = [](const MeshPosition& at) { return at.tensor == 0; };
      options.stop_over = static_cast<int64_t>(limit());
      const CompiledRanks ranks(resolved.config, backend_, cluster_, options);
      ++tried.compiled;
      const auto bytes = static_cast<double>(ranks.memory_bytes());
      if (bytes > limit()) {
        ++tried.too_large;
        tried.least_bytes = std::min(tried.least_bytes, bytes);
        return false;
      }
      Choice choice{candidate, resolved.config, ranks.on(cluster_), {}};
      const double most = tried.choice ? std::min(worth, tried.choice->plan.step_s) : worth;
      if (choice.plan.step_s >= most) return true;
      if (options_.offers) choice.offers = options_.offers(ranks, choice.plan, resolved.config);
      tried.choice = std::move(choice);
      return true;
    } catch (const ConfigError&) {
      return false;  // keys that do not go together: the space knows only the more common of such rules
    }
  }

  void take(Tried tried, const std::string& family) {
    result_.compiled += tried.compiled;
    result_.too_large += tried.too_large;
    least_bytes_ = std::min(least_bytes_, tried.least_bytes);
    if (!tried.choice) return;
    const auto [it, is_new] = found_.try_emplace(family, *tried.choice);
    if (!is_new && tried.choice->plan.step_s < it->second.plan.step_s) it->second = std::move(*tried.choice);
  }

  // The other ranks of its tensor axis, which hold a little more or less.
  bool fits_beside(Choice& choice) const {
    if (choice.candidate.mesh.tensor == 1) return true;
    PlanOptions options;
    options.model = options_.model;
    options.alike_once = true;
    options.only = [](const MeshPosition& at) { return at.tensor > 0; };
    const int64_t bytes = CompiledRanks(choice.config, backend_, cluster_, options).memory_bytes();
    choice.plan.memory_bytes = std::max(choice.plan.memory_bytes, bytes);
    return static_cast<double>(bytes) <= limit();
  }

  // The largest rank with every pass of its step: what was read off fewer passes is what will be allocated.
  bool fits_whole(const Choice& choice) const {
    const MeshShape& mesh = choice.candidate.mesh;
    if (mesh.pipeline == 1) return true;
    const auto larger = [](const RankPlan& a, const RankPlan& b) {
      return device_bytes(a.memory) < device_bytes(b.memory);
    };
    const std::vector<RankPlan>& ranks = choice.plan.ranks;
    const RankPlan& largest = *std::max_element(ranks.begin(), ranks.end(), larger);
    const CompileOptions options =
        compile_options(choice.config, backend_, largest.at, std::min(mesh.world(), cluster_.gpus_per_node));
    const CompiledStep step = compile_config(choice.config, options, options_.model);
    return static_cast<double>(device_bytes(step.sizes)) <= limit();
  }

  SearchResult finish() {
    for (auto& [family, choice] : found_) result_.choices.push_back(std::move(choice));
    std::stable_sort(result_.choices.begin(), result_.choices.end(),
                     [](const Choice& a, const Choice& b) { return a.plan.step_s < b.plan.step_s; });
    if (result_.choices.size() > options_.keep) result_.choices.resize(options_.keep);
    std::vector<char> fit(result_.choices.size());
    for_each_in_threads(0, fit.size(), options_.threads,
                        [&](size_t i) { fit[i] = fits_beside(result_.choices[i]); });
    for (size_t i = fit.size(); i-- > 0;) {
      if (!fit[i]) result_.choices.erase(result_.choices.begin() + static_cast<long>(i));
    }
    while (!result_.choices.empty() && !fits_whole(result_.choices.front()))
      result_.choices.erase(result_.choices.begin());
    if (!result_.choices.empty()) return std::move(result_);
    if (least_bytes_ == kNever)
      throw ConfigError("--search: the keys that are fixed go with no mesh of {} GPUs; fix fewer of them",
                        cluster_.gpus);
    throw PlanError(
        "memory: nothing that was searched fits on {} x {}: the smallest needs about {} a GPU, which has {}; "
        "use more GPUs, larger ones, or fix fewer keys",
        cluster_.gpus, cluster_.gpu.name, format_bytes(static_cast<int64_t>(least_bytes_)),
        format_bytes(static_cast<int64_t>(limit())));
  }

  const ResolvedConfig& given_;
  const Backend& backend_;
  const Cluster& cluster_;
  const SearchOptions& options_;
  const int blocks_;
  const std::vector<Candidate> space_;
  std::vector<Group> groups_;            // the fastest first
  std::map<std::string, Choice> found_;  // the best of each family
  double least_bytes_ = kNever;          // of what does not fit
  SearchResult result_;
};

}  // namespace

SearchResult search(const ResolvedConfig& given, const Backend& backend, const Cluster& cluster,
                    const SearchOptions& options) {
  return Search(given, backend, cluster, options).run();
}

}  // namespace tandem::plan
