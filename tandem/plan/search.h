// Finds the fastest ways to run a config's step on a cluster. Candidates are taken in the order of what they
// are estimated to take (estimate.h); each is compiled for its ranks and simulated like any plan, and only
// what fits is returned. Estimates leave things out, so that they are low: the search ends when what is left
// would be too slow even if its estimate were too high by kSlack. Of candidates that differ only in what is
// computed again and what lies on the host, more of either is not tried where less of both fits.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tandem/plan/money.h"
#include "tandem/plan/search_space.h"
#include "tandem/plan/time_plan.h"

namespace tandem::plan {

inline constexpr double kSlack = 0.03;

struct Choice {
  Candidate candidate;
  Config config;
  TimePlan plan;
  std::vector<Offer> offers;  // cheapest first; none where nobody lends such machines
};

struct SearchOptions {
  BuildModel model = build_model;
  int threads = 1;
  size_t keep = 10;         // choices, of different families (search_space.h)
  bool exhaustive = false;  // compiles every candidate: what the search is held against
  // What a run of the choice costs; may be empty. Called where it is among the best so far.
  std::function<std::vector<Offer>(const CompiledRanks& ranks, const TimePlan& plan, const Config& config)>
      offers = {};
  std::function<void(size_t compiled, double best_s)> progress = {};
};

struct SearchResult {
  std::vector<Choice> choices;  // fastest first
  size_t candidates = 0;        // that divide as they have to
  size_t compiled = 0;
  size_t too_large = 0;  // compiled, and did not fit
};

// On `cluster.gpus` GPUs. Throws PlanError where nothing fits, ConfigError where nothing divides. The
// winner's largest rank is compiled with every pass of its step before it is returned.
SearchResult search(const ResolvedConfig& given, const Backend& backend, const Cluster& cluster,
                    const SearchOptions& options);

}  // namespace tandem::plan
