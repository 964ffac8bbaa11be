#include "tandem/launch/places/rank_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <nlohmann/json.hpp>

#include "tandem/launch/failure.h"
#include "tandem/launch/places/all_wait.h"

namespace tandem {
namespace {

constexpr double kGap_s = 2;          // between looks: this process did not run
constexpr double kSuspicion_s = 0.2;  // from here on it is asked whether the rank got a core
constexpr double kWorthLearning_s = 1;
constexpr double kTimesLonger = 4;   // than ever before
constexpr double kLeastOwn_s = 2;    // on a core, beyond that
constexpr double kHighLoad = 4;      // a core, from which on all take long
constexpr double kMuchSlower = 1.4;  // busy, than the median of the others ...
constexpr double kLeastMs = 2;       // ... and by this much
constexpr double kSlowNoMore = 1.2;
constexpr double kBoard_s = 0.5;
constexpr size_t kMostLearned = 4096;

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double median_of_others(std::span<const Whereabouts> ranks, int but, double Whereabouts::*value) {
  std::vector<double> values;
  for (const Whereabouts& place : ranks) {
    if (place.rank != but) values.push_back(place.*value);
  }
  return median(std::move(values));
}

bool is_much(double busy_ms, double others_ms) {
  return busy_ms > std::max(kMuchSlower * others_ms, others_ms + kLeastMs);
}

// How long a thread of the process waited for a core, of the one that waited longest.
double starved_since(const std::map<pid_t, double>& before, const std::map<pid_t, double>& now) {
  double most = 0;
  for (const auto& [thread, starved_s] : now) {
    const auto earlier = before.find(thread);
    most = std::max(most, starved_s - (earlier != before.end() ? earlier->second : 0));
  }
  return most;
}

}  // namespace

std::string Verdict::cause() const { return blames() ? describe_place(place) : line; }

void RankWatch::Timer::restart(uint64_t seen, double now_s) {
  version = seen;
  since_s = now_s;
  starved_at.reset();
  starved_s = 0;
}

RankWatch::RankWatch(std::vector<Rank> ranks, std::string node, const Limits& limits, Facts facts,
                     std::function<double()> load)
    : node_(std::move(node)), limits_(limits), facts_(std::move(facts)), load_(std::move(load)) {
  for (Rank& rank : ranks) {
    Watched& watched = ranks_.emplace_back();
    watched.rank = rank.rank;
    watched.page = std::move(rank.page);
  }
}

const PlacePage& RankWatch::page(const Watched& rank) const {
  return *std::launder(reinterpret_cast<const PlacePage*>(rank.page->data()));
}

// All timers stand still for that long.
void RankWatch::skip(double seconds) {
  for (Watched& rank : ranks_) {
    if (rank.stopped_since) *rank.stopped_since += seconds;
    rank.all.since_s += seconds;
    for (Timer& timer : rank.streams) timer.since_s += seconds;
  }
}

// From the moment on at which it is seen to last.
void RankWatch::measure(Timer& timer, double now_s, pid_t pid) {
  if (timer.lasts_s(now_s) < kSuspicion_s) return;
  ProcessFacts facts = facts_(pid);
  if (facts.state == 't') return timer.restart(timer.version, now_s);
  if (!timer.starved_at) {
    timer.starved_at = std::move(facts.starved_s);
    return;
  }
  timer.starved_s = std::max(timer.starved_s, starved_since(*timer.starved_at, facts.starved_s));
}

// A command has ended that took long: longer than it would have needed, where it had to wait for a core.
void RankWatch::learn(Watched& rank, int stream, double now_s, pid_t pid) {
  Timer& timer = rank.streams[stream];
  if (rank.commands[stream].empty() || timer.lasts_s(now_s) < kWorthLearning_s) return;
  measure(timer, now_s, pid);
  if (timer.own_s(now_s) < kWorthLearning_s || rank.longest.size() >= kMostLearned) return;
  double& longest = rank.longest[rank.commands[stream]];
  longest = std::max(longest, timer.own_s(now_s));
}

std::optional<double> RankWatch::stuck_for(Watched& rank, double now_s, pid_t pid, Whereabouts& place) {
  for (int i = 0; i < PlacePage::kStreams; ++i) {
    Timer& timer = rank.streams[i];
    uint64_t version = 0;
    const LineRecord line = page(rank).streams[i].read(&version);
    if (version != timer.version) {
      learn(rank, i, now_s, pid);
      timer.restart(version, now_s);
      rank.commands[i] = line.doing == Doing::Computes ? fmt::format("{} {}", place.program, line.index) : "";
      continue;
    }
    if (rank.commands[i].empty()) continue;
    measure(timer, now_s, pid);
    const auto longest = rank.longest.find(rank.commands[i]);
    const double usual =
        kTimesLonger *
        (longest != rank.longest.end() ? longest->second : static_cast<double>(line.expected_s));
    if (timer.lasts_s(now_s) < limits_.stuck_s + usual ||
        timer.own_s(now_s) < std::min(kLeastOwn_s, limits_.stuck_s) + usual)
      continue;
    place.index = line.index;
    place.command = line.get_name();
    place.block = line.block;
    place.collective = false;
    return timer.lasts_s(now_s);
  }
  const bool own_code = place.state == "running" && place.index < 0 && !place.collective &&
                        place.what != "device" && place.what != "evaluation";
  if (!own_code || place.since_s < kWorthLearning_s) return std::nullopt;
  measure(rank.all, now_s, pid);
  // It may wait for a disk, which a busy machine makes slow too.
  const double load = std::max(1.0, load_() / kHighLoad);
  if (rank.all.own_s(now_s) < load * limits_.own_code_s) return std::nullopt;
  return rank.all.lasts_s(now_s);
}

std::vector<Verdict> RankWatch::look(double now_s, std::span<const Condition> conditions,
                                     std::vector<Whereabouts> others) {
  if (looked_s_ > 0 && now_s - looked_s_ > kGap_s) skip(now_s - looked_s_);
  looked_s_ = now_s;
  struct Found {
    int rank;
    const char* kind;
    double for_s;
  };
  std::vector<Found> found;
  here_.clear();
  for (size_t i = 0; i < ranks_.size(); ++i) {
    Watched& rank = ranks_[i];
    const PlacePage& at = page(rank);
    Whereabouts place = read_whereabouts(at, rank.rank);
    place.node = node_;
    place.pid = conditions[i].pid;
    uint64_t versions = at.main.version.load(std::memory_order_relaxed);
    versions += at.moved.load(std::memory_order_relaxed);
    for (const auto& line : at.streams) versions += line.version.load(std::memory_order_relaxed);
    for (const auto& axis : at.calls) {
      for (const auto& line : axis) versions += line.version.load(std::memory_order_relaxed);
    }
    if (versions != rank.all.version || rank.all.since_s == 0) rank.all.restart(versions, now_s);
    place.since_s = now_s - rank.all.since_s;
    if (conditions[i].pid == 0) {
      place.state = place.state == "done" ? "done" : "gone";
    } else if (conditions[i].stopped) {
      if (!rank.stopped_since) rank.stopped_since = now_s;
      if (now_s - *rank.stopped_since >= limits_.stopped_s)
        found.push_back({rank.rank, "stopped", now_s - *rank.stopped_since});
      place.state = "stopped";
    } else {
      rank.stopped_since.reset();
      if (const auto for_s = stuck_for(rank, now_s, conditions[i].pid, place)) {
        place.state = "stuck";
        found.push_back({rank.rank, "stuck", *for_s});
      }
    }
    here_.push_back(std::move(place));
  }
  everywhere_ = here_;
  everywhere_.insert(everywhere_.end(), std::make_move_iterator(others.begin()),
                     std::make_move_iterator(others.end()));
  std::sort(everywhere_.begin(), everywhere_.end(),
            [](const Whereabouts& a, const Whereabouts& b) { return a.rank < b.rank; });
  find_waits(everywhere_);
  std::vector<Verdict> verdicts;
  for (const Found& each : found) {
    for (const Whereabouts& place : here_) {
      if (place.rank == each.rank) verdicts.push_back(verdict(each.kind, place, each.for_s));
    }
  }
  if (auto waiting = find_waiting(); waiting && verdicts.empty()) verdicts.push_back(std::move(*waiting));
  if (auto slow = find_slow(conditions)) verdicts.push_back(std::move(*slow));
  if (now_s - boarded_s_ >= kBoard_s || !verdicts.empty()) {
    boarded_s_ = now_s;
    write_board();
  }
  return verdicts;
}

Verdict RankWatch::verdict(std::string kind, const Whereabouts& place, double for_s) const {
  Verdict result{place.rank, std::move(kind), for_s, "", place, waiters_of(place.rank, everywhere_),
                 everywhere_};
  const std::string waiters = result.waiters.empty()
                                  ? ""
                                  : fmt::format("; {} wait{} for it", describe_ranks(result.waiters),
                                                result.waiters.size() == 1 ? "s" : "");
  result.line =
      fmt::format("rank {} on {} is {} {}{}{}", place.rank, place.node, result.kind, describe_place(place),
                  for_s > 0 ? fmt::format(" for {:.1f} s", for_s) : "", waiters);
  return result;
}

// The launcher of rank 0 says it.
std::optional<Verdict> RankWatch::find_waiting() const {
  const auto found = find_all_wait(everywhere_);
  if (!found || here_.front().rank != 0 ||
      found->for_s < (found->certain ? limits_.stuck_s : limits_.all_wait_s))
    return std::nullopt;
  Verdict result{0, "waiting", found->for_s, "", here_.front(), {}, everywhere_};
  result.line = fmt::format("all ranks wait in collectives for {:.1f} s, and nothing moves: {}", found->for_s,
                            found->who);
  return result;
}

// Ranks of one node share its cores as the scheduler's dice fall: what a rank waited for one is not its own.
// That costs a look at every thread, and is asked for from the moment on at which a rank seems slow, for as
// many steps as are compared. Of several nodes one may well be slow because others compute there.
bool RankWatch::is_slow_on_its_own(const Whereabouts& rank, std::span<const Condition> conditions) {
  const bool begins = !suspect_ || suspect_->rank != rank.rank;
  if (!begins && rank.steps_done < suspect_->steps_done + kBusySteps) return false;
  std::vector<std::map<pid_t, double>> starved;
  for (const Condition& condition : conditions) starved.push_back(facts_(condition.pid).starved_s);
  if (begins) {
    suspect_ = {rank.rank, rank.steps_done, std::move(starved)};
    return false;
  }
  const auto steps = static_cast<double>(rank.steps_done - suspect_->steps_done);
  double own = 0;
  std::vector<double> others;
  for (size_t i = 0; i < here_.size(); ++i) {
    const double waited_ms = 1e3 * starved_since(suspect_->starved[i], starved[i]) / steps;
    const double busy_ms = std::max(0.0, here_[i].busy_ms - waited_ms);
    if (here_[i].rank == rank.rank) {
      own = busy_ms;
    } else {
      others.push_back(busy_ms);
    }
  }
  suspect_ = {rank.rank, rank.steps_done, std::move(starved)};  // once more, if it was the dice
  return is_much(own, median(std::move(others)));
}

// In two windows of steps, one after the other.
std::optional<Verdict> RankWatch::find_slow(std::span<const Condition> conditions) {
  const bool one_node = everywhere_.size() == here_.size();
  const auto knows = [](const Whereabouts& place) { return place.steps_done >= 2 * kBusySteps + 2; };
  if (everywhere_.size() < 2 || !std::all_of(everywhere_.begin(), everywhere_.end(), knows) ||
      (one_node && load_() > kHighLoad))
    return std::nullopt;
  const auto most =
      std::max_element(everywhere_.begin(), everywhere_.end(),
                       [](const Whereabouts& a, const Whereabouts& b) { return a.busy_ms < b.busy_ms; });
  const double others = median_of_others(everywhere_, most->rank, &Whereabouts::busy_ms);
  const double others_before = median_of_others(everywhere_, most->rank, &Whereabouts::busy_before_ms);
  if (slow_ && (most->rank != *slow_ || most->busy_ms < kSlowNoMore * others)) slow_.reset();
  if (slow_ && most->state == "running") most->state = "slow";
  if (slow_) return std::nullopt;
  if (!is_much(most->busy_ms, others)) {
    suspect_.reset();
    return std::nullopt;
  }
  const bool own = !one_node || is_slow_on_its_own(*most, conditions);
  if (!own || !is_much(most->busy_before_ms, others_before)) return std::nullopt;
  slow_ = most->rank;
  most->state = "slow";
  const bool mine = std::any_of(here_.begin(), here_.end(),
                                [&](const Whereabouts& place) { return place.rank == most->rank; });
  if (!mine) return std::nullopt;  // its own launcher says it
  Verdict result{most->rank, "slow", 0, "", *most, {}, everywhere_};
  for (const Whereabouts& place : everywhere_) {
    if (place.rank != most->rank) result.waiters.push_back(place.rank);
  }
  result.line =
      fmt::format("rank {} on {} is slow: busy {:.0f} ms a step, the others {:.0f}; {} wait{} for it",
                  most->rank, most->node, most->busy_ms, others, describe_ranks(result.waiters),
                  result.waiters.size() == 1 ? "s" : "");
  return result;
}

std::optional<Verdict> RankWatch::dead(int rank) const {
  for (const Watched& watched : ranks_) {
    if (watched.rank != rank || !page(watched).is_used()) continue;
    Whereabouts place = read_whereabouts(page(watched), rank);
    place.node = node_;
    return verdict("dead", place, 0);
  }
  return std::nullopt;
}

std::string RankWatch::message() const {
  nlohmann::json list = nlohmann::json::array();
  for (const Whereabouts& place : here_) list.push_back(to_message(place));
  return list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::vector<Whereabouts> RankWatch::parse_message(const std::string& text) {
  std::vector<Whereabouts> ranks;
  const nlohmann::json list = nlohmann::json::parse(text, nullptr, false);
  if (!list.is_array()) return ranks;
  for (const nlohmann::json& entry : list) ranks.push_back(from_message(entry));
  return ranks;
}

std::string RankWatch::run_directory() const {
  for (const Watched& rank : ranks_) {
    if (page(rank).is_used() && !page(rank).run_path().empty()) return page(rank).run_path();
  }
  return {};
}

// For rank 0, which keeps status.json.
void RankWatch::write_board() {
  if (ranks_.empty() || ranks_.front().rank != 0 || !page(ranks_.front()).is_used()) return;
  nlohmann::json list = nlohmann::json::array();
  for (const Whereabouts& place : everywhere_) list.push_back(to_json(place));
  auto* at = std::launder(reinterpret_cast<PlacePage*>(ranks_.front().page->data()));
  at->write_board(list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace tandem
