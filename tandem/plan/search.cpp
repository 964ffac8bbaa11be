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
#include "tandem/plan/refine.h"

namespace tandem::plan {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr size_t kRound = 4;  // groups between two looks at what is best so far

// A candidate and the least that its step may take, as far as is known.
struct Ranked {
  const Candidate* candidate;
  double at_least;
  bool refined = false;
};

// Candidates that differ only in what is computed again and what lies on the host. The next to look at is at
// the front.
struct Group {
  std::string family;
  std::vector<Ranked> members;
  double at_least() const { return members.empty() ? kNever : members.front().at_least; }
};

// What became of a candidate.
struct Tried {
  std::optional<Choice> choice;  // if it fits
  bool fits = false;
  size_t compiled = 0, too_large = 0;
  double bytes = kNever;  // of a GPU, if it does not fit there
  double host_bytes = 0;  // of a node, if it does not fit there
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
        space_(search_space(given, cluster, blocks_)),
        refiner_(given.config, backend, cluster, options.model, blocks_) {}

  SearchResult run() {
    if (space_.empty())
      throw ConfigError(
          "--search: no mesh of {} suits the config: {} GPUs, train.batch {}, {} blocks and the keys that "
          "are "
          "fixed; fix fewer of them, or use another number of GPUs",
          cluster_.gpus, cluster_.gpus, given_.config.train.batch, blocks_);
    result_.candidates = space_.size();
    rank();
    for (std::vector<Group*> round = next_round(); !round.empty(); round = next_round()) {
      std::vector<Tried> tried(round.size());
      for_each_in_threads(0, round.size(), options_.threads, [&](size_t i) {
        if (round[i]->members.front().refined)
          tried[i] = try_one(*round[i]->members.front().candidate);
        else
          refine(*round[i]);
      });
      for (size_t i = 0; i < round.size(); ++i) {
        if (tried[i].compiled > 0) take(std::move(tried[i]), *round[i]);
      }
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
      groups_[it->second].members.push_back(
          {&candidate, estimate.seconds * (1 - kSlack), options_.exhaustive});
    }
    for (Group& group : groups_) sort(group);
  }

  static void sort(Group& group) {
    std::stable_sort(group.members.begin(), group.members.end(),
                     [](const Ranked& a, const Ranked& b) { return a.at_least < b.at_least; });
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

  // The groups whose next candidate may be the fastest of all that are left, and among the best.
  std::vector<Group*> next_round() {
    const double worst = worst_kept();
    std::vector<Group*> open;
    for (Group& group : groups_) {
      const auto own = found_.find(group.family);
      const double most = own == found_.end() ? worst : std::min(worst, own->second.plan.step_s);
      if (options_.exhaustive ? !group.members.empty() : group.at_least() < most) open.push_back(&group);
    }
    const size_t count = std::min(open.size(), kRound);
    std::partial_sort(open.begin(), open.begin() + static_cast<long>(count), open.end(),
                      [](const Group* a, const Group* b) { return a->at_least() < b->at_least(); });
    open.resize(count);
    return open;
  }

  void refine(Group& group) const {
    Ranked& first = group.members.front();
    first.refined = true;
    try {
      if (const std::optional<double> seconds = refiner_.seconds(*first.candidate))
        first.at_least = std::max(first.at_least, *seconds * (1 - kRefinedSlack));
    } catch (const ConfigError&) {
      // Whoever compiles all of it will see.
    }
    sort(group);
  }

  Tried try_one(const Candidate& candidate) const {
    Tried tried;
    tried.compiled = 1;
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
      const auto bytes = static_cast<double>(ranks.memory_bytes());
      const bool too_large_for_host = !fits_host(cluster_, ranks.host_bytes());
      if (bytes > limit() || too_large_for_host) {
        tried.too_large = 1;
        if (bytes > limit()) tried.bytes = bytes;
        if (too_large_for_host) tried.host_bytes = static_cast<double>(ranks.host_bytes());
        return tried;
      }
      tried.fits = true;
      Choice choice{candidate, resolved.config, ranks.on(cluster_), {}};
      if (choice.plan.step_s >= worst_kept()) return tried;
      if (options_.offers) choice.offers = options_.offers(ranks, choice.plan, resolved.config);
      tried.choice = std::move(choice);
    } catch (const ConfigError&) {
      // Keys that do not go together: the space knows only the more common of such rules.
    }
    return tried;
  }

  // Its first candidate was compiled.
  void take(Tried tried, Group& group) {
    const Candidate& candidate = *group.members.front().candidate;
    group.members.erase(group.members.begin());
    result_.compiled += tried.compiled;
    result_.too_large += tried.too_large;
    least_bytes_ = std::min(least_bytes_, tried.bytes);
    if (tried.host_bytes > 0 && tried.bytes == kNever)
      least_host_bytes_ = std::min(least_host_bytes_, tried.host_bytes);
    if (!options_.exhaustive) {
      std::erase_if(group.members, [&](const Ranked& other) {
        if (tried.host_bytes > 0) return other.candidate->offload.size() >= candidate.offload.size();
        return tried.fits && saves_as_much(*other.candidate, candidate);
      });
    }
    if (!tried.choice) return;
    const auto [it, is_new] = found_.try_emplace(group.family, *tried.choice);
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
    if (least_host_bytes_ < kNever)
      throw PlanError(
          "memory: what would fit on {} x {} needs at least {} of a machine's own memory, which has {} and "
          "keeps "
          "some for the system; set checkpoint.async to false, offload less, or use other machines",
          cluster_.gpus, cluster_.gpu.name, format_bytes(static_cast<int64_t>(least_host_bytes_)),
          format_bytes(static_cast<int64_t>(cluster_.host_memory)));
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
  const Refiner refiner_;
  std::vector<Group> groups_;
  std::map<std::string, Choice> found_;  // the best of each family
  double least_bytes_ = kNever;          // of a GPU, of what does not fit
  double least_host_bytes_ = kNever;     // of a node, of what would fit on its GPUs
  SearchResult result_;
};

}  // namespace

SearchResult search(const ResolvedConfig& given, const Backend& backend, const Cluster& cluster,
                    const SearchOptions& options) {
  return Search(given, backend, cluster, options).run();
}

}  // namespace tandem::plan
