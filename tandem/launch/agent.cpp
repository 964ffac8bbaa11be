#include "tandem/launch/agent.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <random>
#include <set>

#include "tandem/base/error.h"
#include "tandem/base/quantity.h"
#include "tandem/base/system.h"
#include "tandem/comm/kept_memory.h"
#include "tandem/comm/places/place_page.h"
#include "tandem/comm/tcp/free_port.h"
#include "tandem/launch/elastic.h"
#include "tandem/launch/environment.h"
#include "tandem/launch/launch_secret.h"
#include "tandem/launch/log_directory.h"
#include "tandem/launch/node_key_stores.h"
#include "tandem/launch/rendezvous.h"
#include "tandem/launch/round_watch.h"
#include "tandem/launch/signals.h"
#include "tandem/launch/supervisor.h"
#include "tandem/launch/verdict.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kSilence{10000};
constexpr milliseconds kElasticSilence{3000};  // where others go on without a node, they need not wait long
constexpr milliseconds kFarewell{5000};        // for the other nodes to read how the launch ended

std::string make_run_id(const LaunchOptions& options) {
  if (!options.run_id.empty()) return options.run_id;
  if (!options.is_local()) return "none";
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

class Agent {
 public:
  Agent(const LaunchOptions& options, Terminal& terminal)
      : options_(options),
        terminal_(terminal),
        run_id_(make_run_id(options)),
        logs_(options.log_dir),
        filter_(logs_.path(), options.out_filters, options.err_filters),
        signals_(options.more_signals) {}

  int run() { return options_.is_local() ? run_alone() : run_with_others(); }

 private:
  bool is_interrupted();
  Show show(int rank, int local_rank, int stream) const;
  AttemptSetup describe(const Round& round);
  Round own_round(int attempt, int num_ranks) const;
  bool is_elastic() const { return options_.rank_unit > 0; }
  milliseconds silence() const { return is_elastic() ? kElasticSilence : kSilence; }
  int ranks_after(const AttemptResult& result);
  int ranks_here_after(const RoundEnd& end, const AttemptResult& result) const;
  RendezvousOptions meeting_at(const NodeKeyStores& stores);
  int run_alone();
  int run_with_others();
  int take_part(NodeKeyStores& stores);
  RoundEnd run_round(Rendezvous& rendezvous, KeyStore& watch_store, const Round& round);
  int tell_end_without_us(const RoundEnd& end);
  void tell_place(const Round& round);
  void tell_end(const Round& round, const RoundEnd& end);
  RoundEnd wait_for_others(Rendezvous& rendezvous, RoundWatch& watch, const Round& round, int code);

  const LaunchOptions& options_;
  Terminal& terminal_;
  const std::string run_id_;
  Secret secret_;                                   // of the ranks
  const KeptMemory kept_{options_.ranks_per_node};  // of the ranks, over all attempts
  LogDirectory logs_;
  LineFilter filter_;
  SignalReader signals_;  // before any thread
  int interrupted_by_ = 0;
  int offered_ranks_ = options_.ranks_per_node;  // of this node, for the next attempt
};

// Between attempts nobody supervises: signals are asked for.
bool Agent::is_interrupted() {
  for (int signal : signals_.take()) {
    if (signals_.asks_to_stop(signal)) interrupted_by_ = signal;
  }
  return interrupted_by_ != 0;
}

// How the terminal shows a stream of a rank: 1 is stdout, 2 stderr.
Show Agent::show(int rank, int local_rank, int stream) const {
  const std::set<int>& chosen = options_.shown_local_ranks;
  if (!chosen.empty() && !chosen.contains(local_rank)) return Show::Nothing;
  if (const std::optional<int> tee = options_.tee.of(local_rank))
    return (*tee & stream) != 0 ? Show::Prefixed : Show::Nothing;
  if ((options_.redirects.of(local_rank).value_or(0) & stream) != 0) return Show::Nothing;
  if (!chosen.empty()) return chosen.size() == 1 ? Show::AsItIs : Show::Prefixed;
  return rank == 0 ? Show::AsItIs : Show::Nothing;
}

AttemptSetup Agent::describe(const Round& round) {
  AttemptSetup setup;
  setup.program = options_.program;
  setup.is_tandem = options_.is_tandem;
  setup.stuck_after_s = options_.stuck_after_s;
  setup.is_scheduled = std::getenv("SLURM_JOB_ID") != nullptr;
  setup.filter = &filter_;
  setup.grace = wait_of(options_.shutdown_s.value_or(options_.grace_s));
  if (options_.shutdown_s) setup.failure_grace = setup.grace;
  setup.heading = fmt::format("{} attempt {} on {}", utc_time(), round.restarts, hostname());
  const std::vector<std::string> inherited = own_environment();
  RankPlace place;
  place.world_size = round.world_size();
  place.local_world_size = round.own().num_ranks;
  place.node_rank = round.node_rank;
  place.num_nodes = static_cast<int>(round.nodes.size());
  place.master_addr = round.master_addr;
  place.master_port = round.master_port;
  place.restart_count = round.restarts;
  place.max_restarts = options_.max_restarts;
  place.run_id = run_id_;
  place.secret = secret_;
  place.kept = kept_.ticket();
  place.role = options_.role;
  place.virtual_local_rank = options_.virtual_local_rank;
  for (int local = 0; local < round.own().num_ranks; ++local) {
    place.local_rank = local;
    place.rank = round.first_rank() + local;
    place.notes = logs_.notes_of(place.rank);
    const auto page = options_.stuck_after_s > 0 ? SharedRegion::create(sizeof(PlacePage)) : nullptr;
    place.page = page ? page->ticket() : "";
    const PrefixValues values{options_.role, place.rank, local, hostname()};
    setup.ranks.push_back({place.rank, rank_environment(place, inherited), logs_.log_of(place.rank),
                           place.notes, show(place.rank, local, 1), show(place.rank, local, 2),
                           expand_prefix(options_.prefix_template, values), page});
  }
  return setup;
}

Round Agent::own_round(int attempt, int num_ranks) const {
  Round round;
  round.restarts = attempt;
  round.nodes = {NodeInfo{.host = hostname(), .address = "127.0.0.1", .num_ranks = num_ranks}};
  if (!options_.master_addr.empty()) round.master_addr = options_.master_addr;
  round.master_port = options_.master_port != 0 ? options_.master_port : free_port();
  return round;
}

// How many the next attempt has, after a failure.
int Agent::ranks_after(const AttemptResult& result) {
  const int all = options_.ranks_per_node;
  if (options_.rank_unit == 0) return all;
  const int left = ranks_left(result.ends, options_.rank_unit);
  if (left < all)
    terminal_.message(fmt::format("going on with {} of {} ranks; all are started again in {} s", left, all,
                                  options_.return_after_s));
  return left;
}

// Only failures use up restarts; that ranks come back is none.
int Agent::run_alone() {
  secret_ = secret_for_one_node(options_);
  int num_ranks = options_.ranks_per_node, failures = 0;
  for (int attempt = 0;; ++attempt) {
    AttemptSetup setup = describe(own_round(attempt, num_ranks));
    if (num_ranks < options_.ranks_per_node) setup.regroup_after = wait_of(options_.return_after_s);
    const AttemptResult result = supervise(setup, signals_, terminal_);
    if (result.regrouped && !all_done(result.ends)) {
      num_ranks = options_.ranks_per_node;
      terminal_.message(fmt::format("going on with {} ranks", num_ranks));
    } else {
      const RoundEnd end = judge(result, failures, options_.max_restarts);
      report(end, result, options_.max_restarts, logs_, terminal_);
      if (end.kind != EndKind::Restart) return end.code;
      ++failures;
      num_ranks = ranks_after(result);
    }
    if (is_interrupted()) return 128 + interrupted_by_;
  }
}

int Agent::tell_end_without_us(const RoundEnd& end) {
  terminal_.message(end.kind == EndKind::Done ? "the launch has ended well without this node"
                    : end.reason.empty()
                        ? fmt::format("the launch has ended without this node, with exit code {}", end.code)
                        : fmt::format("the launch has ended without this node: {}", end.reason));
  return end.code;
}

// Of elastic ranks on several nodes: those that failed by themselves stay away for a while.
int Agent::ranks_here_after(const RoundEnd& end, const AttemptResult& result) const {
  const int all = options_.ranks_per_node;
  if (!is_elastic() || end.reason.empty() || result.ends.empty()) return all;
  // The other axes may span nodes: then the ranks of all of them make up multiples (share_out).
  return ranks_left(result.ends, all % options_.rank_unit == 0 ? options_.rank_unit : 1);
}

// Rank 0 speaks for its node; the others' launchers would say nothing all the time.
void Agent::tell_place(const Round& round) {
  if (is_elastic() && round.restarts > 0 && round.node_rank == 0)
    terminal_.message(fmt::format("going on with {} on {}", count_of(round.world_size(), "rank"),
                                  count_of(static_cast<int64_t>(round.nodes.size()), "node")));
  if (round.own().num_ranks == 0)
    return terminal_.message(
        fmt::format("node {} of {}: no rank is needed here for now", round.node_rank, round.nodes.size()));
  if (round.first_rank() == 0) return;
  std::vector<int> here(static_cast<size_t>(round.own().num_ranks));
  std::iota(here.begin(), here.end(), round.first_rank());
  terminal_.message(
      fmt::format("node {} of {}: {} of {} on {}; what they print is in {}, and node 0 ({}) shows rank 0",
                  round.node_rank, round.nodes.size(), describe_ranks(here), round.world_size(),
                  round.own().host, logs_.path().string(), round.nodes.front().host));
}

void Agent::tell_end(const Round& round, const RoundEnd& end) {
  if (round.first_rank() == 0 || !end.reason.empty()) return;  // the reason has been told
  terminal_.message(fmt::format("node {} of {}: {}", round.node_rank, round.nodes.size(),
                                end.kind == EndKind::Done
                                    ? "all ranks have ended well"
                                    : fmt::format("interrupted, exit code {}", end.code)));
}

// This node's ranks are done; the launch is when all are. The others may take long, or fail and restart all.
RoundEnd Agent::wait_for_others(Rendezvous& rendezvous, RoundWatch& watch, const Round& round, int code) {
  rendezvous.finish(round, code);
  for (int signals_seen = 0;;) {
    if (const std::optional<RoundEnd> end = watch.wait_for_end(milliseconds(50))) return *end;
    if (const std::string lost = watch.store_error(); !lost.empty()) {
      if (code == 0) return {};  // the work here is done
      throw CommError("{}", lost);
    }
    interrupted_by_ = 0;
    if (is_interrupted() && ++signals_seen == 1) watch.tell_interrupt(interrupted_by_, -1);
    if (signals_seen > 1) return {EndKind::Stop, 128 + interrupted_by_, "", 0};
  }
}

RoundEnd Agent::run_round(Rendezvous& rendezvous, KeyStore& watch_store, const Round& round) {
  RoundWatch::Options watching;
  watching.id = run_id_;
  watching.interval = std::min(wait_of(options_.monitor_interval_s), silence() / 5);
  watching.silence = silence();
  watching.takes_newcomers = is_elastic();
  const auto counted = [&](RoundEnd end) {
    if (end.kind != EndKind::Restart) return end;
    end.restarts = round.restarts + 1;
    end.returns = round.returns;
    return end;
  };
  watching.end_for = [&](const std::string& reason, int exit_code) {
    return counted(end_for_failure(reason, exit_code, round.failures(), options_.max_restarts));
  };
  RoundWatch watch(rendezvous, watch_store, round, watching);
  AttemptSetup setup = describe(round);
  if (offered_ranks_ < options_.ranks_per_node) setup.regroup_after = wait_of(options_.return_after_s);
  const AttemptResult result =
      setup.ranks.empty() ? AttemptResult{} : supervise(setup, signals_, terminal_, &watch);
  const RoundEnd own = counted(judge(result, round.failures(), options_.max_restarts));
  RoundEnd end;
  if (result.stopped_from_outside && !watch.end()) {
    const std::string lost =
        fmt::format("rendezvous '{}': the store is lost: {}", run_id_, watch.store_error());
    if (is_elastic() && (result.interrupted == 0 || result.regrouped)) throw CommError("{}", lost);
    end = {EndKind::Stop, static_cast<int>(ExitCode::Failed), lost, 0};
  } else if (watch.end()) {
    end = *watch.end();
  } else if (result.regrouped && !all_done(result.ends)) {
    end = wait_for_others(rendezvous, watch, round, static_cast<int>(ExitCode::Interrupted));
  } else if (own.reason.empty()) {
    end = wait_for_others(rendezvous, watch, round, own.code);
  } else {
    end = rendezvous.end(round, own);
  }
  report(end, result, options_.max_restarts, logs_, terminal_);
  offered_ranks_ = ranks_here_after(end, result);
  rendezvous.offer(offered_ranks_);
  return end;
}

RendezvousOptions Agent::meeting_at(const NodeKeyStores& stores) {
  RendezvousOptions meeting;
  meeting.id = run_id_;
  meeting.self = {.host = hostname(),
                  .address = options_.local_addr.empty() ? stores.own_address : options_.local_addr,
                  .num_ranks = options_.ranks_per_node,
                  .most_ranks = options_.ranks_per_node,
                  .given_rank = options_.node_rank,
                  .least_nodes = options_.nodes.least,
                  .most_nodes = options_.nodes.most};
  meeting.master_addr = stores.master_addr;
  meeting.master_port = stores.master_port;
  meeting.timeout = wait_of(options_.rendezvous_timeout_s);
  meeting.last_call = wait_of(options_.last_call_s);
  meeting.silence = silence();
  meeting.rank_unit = options_.rank_unit;
  meeting.interrupted = [this] { return is_interrupted(); };
  meeting.notice = [this](const std::string& text) { terminal_.message(text); };
  return meeting;
}

int Agent::take_part(NodeKeyStores& stores) {
  secret_ = stores.secret;
  offered_ranks_ = options_.ranks_per_node;
  Rendezvous rendezvous(*stores.main, meeting_at(stores));
  for (;;) {
    const std::optional<Round> round = rendezvous.join();
    if (!round && rendezvous.ended_without_us()) return tell_end_without_us(*rendezvous.ended_without_us());
    if (!round) return 128 + interrupted_by_;
    tell_place(*round);
    const RoundEnd end = run_round(rendezvous, *stores.watch, *round);
    if (end.kind == EndKind::Restart) continue;
    tell_end(*round, end);
    try {
      rendezvous.leave(*round);
      if (stores.serves) rendezvous.wait_until_left(*round, kFarewell);
    } catch (const CommError&) {  // the ranks are done and the code is known: nothing depends on it
    }
    return end.code;
  }
}

// Where ranks may come and go, a node that has lost the store is one that comes back.
int Agent::run_with_others() {
  for (;;) {
    std::optional<NodeKeyStores> stores =
        open_node_key_stores(options_, run_id_, [this] { return is_interrupted(); });
    if (!stores) return 128 + interrupted_by_;
    try {
      return take_part(*stores);
    } catch (const NotMet&) {
      throw;
    } catch (const CommError& error) {
      if (!is_elastic() || stores->serves) throw;
      terminal_.message(fmt::format("{}; this node joins again when it can", error.what()));
    }
  }
}

}  // namespace

int run_launch(const LaunchOptions& options, Terminal& terminal) {
  check_options(options);
  return Agent(options, terminal).run();
}

}  // namespace tandem
