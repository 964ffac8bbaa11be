#include "tandem/launch/rendezvous.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/comm/tcp/free_port.h"
#include "tandem/launch/options.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kBeatEvery{500};
constexpr milliseconds kNewcomers{3000};  // for those who have waited: they look several times a second
constexpr milliseconds kShortestPause{5}, kLongestPause{200};

}  // namespace

std::pair<int, int> parse_signal_and_rank(const std::string& text) {
  const size_t space = std::min(text.find(' '), text.size());
  const auto number = [&](size_t begin, size_t end, int otherwise) {
    int value = otherwise;
    std::from_chars(text.data() + std::min(begin, end), text.data() + end, value);
    return value;
  };
  return {number(0, space, 0), number(space + 1, text.size(), -1)};
}

bool BeatWatch::is_silent(KeyStore& store, int slot) {
  const std::string beat = store.try_get(fmt::format("{}beat/{}", prefix_, slot)).value_or("");
  const auto now = Clock::now();
  const auto [known, is_new] = seen_.try_emplace(slot, Seen{beat, now});
  Seen& seen = known->second;
  if (!is_new && seen.beat != beat) seen = {beat, now};
  seen.silent_for += std::min<Clock::duration>(now - seen.looked, silence_ / 3);
  seen.looked = now;
  return seen.silent_for > silence_;
}

// Waits are many short questions: some stores cannot wait for two things, and joining has to see an end, a
// silent peer and Ctrl-C as well.
struct Rendezvous::Waiting {
  Waiting(int round, std::string keys, milliseconds silence, Clock::time_point give_up_at)
      : number(round), prefix(std::move(keys)), beats(prefix, silence), deadline(give_up_at) {}
  const int number;
  const std::string prefix;
  BeatWatch beats;
  const Clock::time_point deadline;
  int slot = -1;
  int count = 0;  // slots that take part, once the round is closed
  int64_t beat = 0;
  bool interrupted = false;
  Clock::time_point started = Clock::now(), last_beat{};
  std::optional<Clock::time_point> enough_since;
};

std::string Rendezvous::prefix(const std::string& id, int number) {
  return fmt::format("tandem-launch/{}/{}/", id, number);
}

std::optional<RoundEnd> Rendezvous::ended(int number) {
  const std::optional<std::string> text = store_.try_get(prefix(number) + "end");
  return text ? std::optional(RoundEnd::from_text(*text)) : std::nullopt;
}

int Rendezvous::newest_round() {
  const std::string stored = store_.try_get(fmt::format("tandem-launch/{}/round", options_.id)).value_or("0");
  int number = std::max(next_round_, std::atoi(stored.c_str()));
  for (std::optional<RoundEnd> end = ended(number); end; end = ended(++number)) {
    restarts_ = end->restarts;
    returns_ = end->returns;
    lost_ = end->lost;
    lost_slot_ = end->lost_slot;
  }
  next_round_ = number;
  return number;
}

// A beat, a pause, and whether to go on: not where the round has ended, somebody is silent or the user wants
// to stop.
bool Rendezvous::tick(Waiting& waiting, int num_slots) {
  const auto now = Clock::now();
  if (now - waiting.last_beat > kBeatEvery && waiting.slot >= 0) {
    store_.set(fmt::format("{}beat/{}", waiting.prefix, waiting.slot), std::to_string(++waiting.beat));
    waiting.last_beat = now;
  }
  if (options_.interrupted()) {
    waiting.interrupted = true;
    return false;
  }
  if (ended(waiting.number)) return false;
  for (int slot = 0; slot < num_slots; ++slot) {
    if (slot == waiting.slot || !waiting.beats.is_silent(store_, slot)) continue;
    declare_stale(waiting, fmt::format("slot {} is silent", slot));
    return false;
  }
  std::this_thread::sleep_for(std::clamp(std::chrono::duration_cast<milliseconds>(now - waiting.started) / 20,
                                         kShortestPause, kLongestPause));
  return true;
}

// A launch that is under way goes on counting its restarts; one that was left behind by a crash does not.
void Rendezvous::declare_stale(const Waiting& waiting, const std::string& why) {
  const bool left_behind = waiting.count > 0 && waiting.slot >= waiting.count;
  store_.set_if_missing(waiting.prefix + "end", RoundEnd{EndKind::Stale, 1, why, left_behind ? 0 : restarts_,
                                                         0, -1, left_behind ? 0 : returns_}
                                                    .to_text());
}

void Rendezvous::give_up(const Waiting& waiting, const std::string& why) {
  declare_stale(waiting, why);
  throw NotMet("rendezvous '{}' at {}: {}", options_.id, store_.description(), why);
}

// Of the nodes that have joined, those that took part in the attempt before.
int Rendezvous::count_returned(const std::string& keys, int joined) {
  int returned = 0;
  for (int slot = 0; slot < joined; ++slot) {
    const std::optional<std::string> text = store_.try_get(fmt::format("{}node/{}", keys, slot));
    if (text && NodeInfo::from_text(*text).previous_rank >= 0) ++returned;
  }
  return returned;
}

// Elastic ranks wait for nobody who may come later: whoever took part before is here, or gone, and so is
// whoever waited for a place.
bool Rendezvous::has_all_who_live(const Waiting& waiting, int joined) {
  std::set<int> missing;
  for (int slot = 0; slot < previous_count_; ++slot) missing.insert(slot);
  for (int slot = 0; slot < joined; ++slot) {
    const std::optional<std::string> text = store_.try_get(fmt::format("{}node/{}", waiting.prefix, slot));
    if (!text) return false;  // it is about to say
    const NodeInfo node = NodeInfo::from_text(*text);
    if (node.previous_round == previous_round_) missing.erase(node.previous_slot);
  }
  if (!previous_beats_) previous_beats_.emplace(prefix(previous_round_), options_.silence);
  int num_gone = 0;
  for (const int slot : missing) {
    if (slot != lost_slot_ && !previous_beats_->is_silent(store_, slot)) return false;
    ++num_gone;
  }
  return joined >= previous_count_ - num_gone + newcomers_;
}

bool Rendezvous::has_enough_ranks(const Waiting& waiting, int joined) {
  int num_ranks = 0;
  for (int slot = 0; slot < joined; ++slot) {
    const std::optional<std::string> text = store_.try_get(fmt::format("{}node/{}", waiting.prefix, slot));
    if (text) num_ranks += NodeInfo::from_text(*text).most_ranks;
  }
  return num_ranks >= options_.rank_unit;
}

// How long to wait for more nodes once there are enough.
milliseconds Rendezvous::patience(const Waiting& waiting, int joined) {
  if (options_.rank_unit > 0 && previous_count_ > 0 && has_all_who_live(waiting, joined))
    return milliseconds(0);
  const bool all_are_back = previous_count_ > 0 && joined >= previous_count_ + newcomers_ && lost_ == 0;
  if (all_are_back) return milliseconds(0);
  if (count_returned(waiting.prefix, joined) < previous_count_ - lost_) return options_.reunion;
  if (joined < previous_count_ - lost_ + newcomers_) return std::max(options_.last_call, kNewcomers);
  return options_.last_call;
}

void Rendezvous::close_if_enough(Waiting& waiting) {
  const NodeInfo& self = options_.self;
  const int joined = static_cast<int>(store_.add(waiting.prefix + "joined", 0));
  if (joined < self.least_nodes) return;
  if (options_.rank_unit > 0 && !has_enough_ranks(waiting, joined)) return;
  if (!waiting.enough_since) waiting.enough_since = Clock::now();
  if (joined < self.most_nodes && Clock::now() - *waiting.enough_since < patience(waiting, joined)) return;
  const int count = std::min(joined, self.most_nodes);
  for (int slot = 0; slot < count; ++slot) {
    if (!store_.try_get(fmt::format("{}node/{}", waiting.prefix, slot))) return;  // it is about to say
  }
  store_.set(fmt::format("tandem-launch/{}/round", options_.id), std::to_string(waiting.number));
  store_.set(waiting.prefix + "closed", std::to_string(count));
}

// True with a place in a closed round; false where this round is over or the user wants to stop.
bool Rendezvous::wait_for_place(Waiting& waiting) {
  const int slot = static_cast<int>(store_.add(waiting.prefix + "joined", 1)) - 1;
  waiting.slot = slot;
  options_.self.slot = slot;
  store_.set(fmt::format("{}beat/{}", waiting.prefix, slot), "0");
  store_.set(fmt::format("{}node/{}", waiting.prefix, slot), options_.self.to_text());
  bool told = false;
  for (;;) {
    const std::optional<std::string> closed = store_.try_get(waiting.prefix + "closed");
    if (closed) {
      waiting.count = std::atoi(closed->c_str());
      if (slot < waiting.count) return true;
      if (!told)
        options_.notice(
            fmt::format("rendezvous '{}' already runs with {} node{}; waiting for {}", options_.id,
                        waiting.count, waiting.count == 1 ? "" : "s",
                        waiting.count < options_.self.most_nodes ? "its next restart" : "a place"));
      told = true;
    } else if (slot == 0) {
      close_if_enough(waiting);
    }
    const int joined = static_cast<int>(store_.add(waiting.prefix + "joined", 0));
    // Whoever comes late to a launch with room for more waits for its restart, or its end, however long that
    // takes.
    const bool has_room = closed && waiting.count < options_.self.most_nodes;
    if (Clock::now() > waiting.deadline && !has_room) {
      if (closed) store_.add(waiting.prefix + "left", 1);
      const double seconds = std::chrono::duration<double>(options_.timeout).count();
      if (closed)
        throw NotMet("rendezvous '{}' at {}: in use by a launch of {} nodes; choose another --rdzv-id",
                     options_.id, store_.description(), waiting.count);
      give_up(waiting,
              fmt::format("only {} of {} nodes joined within {:g} s; start tandem launch on the missing ones "
                          "with the same --rdzv-endpoint and --rdzv-id, or wait longer with --rdzv-timeout",
                          joined, options_.self.least_nodes, seconds));
    }
    if (!tick(waiting, closed ? waiting.count : joined)) return false;
  }
}

Round Rendezvous::describe(const Waiting& waiting, int count) {
  Round round;
  round.number = waiting.number;
  round.restarts = restarts_;
  round.returns = returns_;
  for (int slot = 0; slot < count; ++slot) {
    const std::string key = fmt::format("{}node/{}", waiting.prefix, slot);
    round.nodes.push_back(NodeInfo::from_text(store_.get(key, options_.silence)));
  }
  round.nodes = order_nodes(std::move(round.nodes));
  if (options_.rank_unit > 0) share_out(round.nodes, options_.rank_unit);
  const auto own = std::find_if(round.nodes.begin(), round.nodes.end(),
                                [&](const NodeInfo& node) { return node.slot == waiting.slot; });
  round.node_rank = static_cast<int>(own - round.nodes.begin());
  return round;
}

bool Rendezvous::start_together(Waiting& waiting, Round& round) {
  const std::string key = waiting.prefix + "master";
  if (round.node_rank == 0) {
    const std::string address = options_.master_addr.empty() ? round.own().address : options_.master_addr;
    const int port = options_.master_port != 0 ? options_.master_port : free_port();
    store_.set(key, fmt::format("{}:{}", address, port));
  }
  store_.add(waiting.prefix + "ready", 1);
  std::optional<std::string> master;
  while (!(master = store_.try_get(key)) || store_.add(waiting.prefix + "ready", 0) < waiting.count) {
    if (Clock::now() > waiting.deadline) give_up(waiting, "the nodes that joined did not all start in time");
    if (!tick(waiting, waiting.count)) return false;
  }
  const HostPort place = parse_host_port(*master, "MASTER_ADDR:MASTER_PORT");
  round.master_addr = place.host;
  round.master_port = place.port;
  return true;
}

// How many of them still wait.
int Rendezvous::count_newcomers() {
  if (previous_count_ == 0) return 0;
  const std::string keys = prefix(previous_round_);
  const auto waiting =
      static_cast<int>(store_.add(keys + "joined", 0) - store_.add(keys + "left", 0)) - previous_count_;
  return std::clamp(waiting, 0, options_.self.most_nodes - previous_count_);
}

// Who comes when an attempt has ended for another to begin waits for those who took part.
void Rendezvous::find_attempt_before(int number) {
  previous_beats_.reset();
  if (number == 0 || previous_round_ == number - 1) return;
  const std::optional<RoundEnd> end = ended(number - 1);
  const std::optional<std::string> closed = store_.try_get(prefix(number - 1) + "closed");
  if (!end || end->kind != EndKind::Restart || !closed) return;
  previous_count_ = std::atoi(closed->c_str());
  previous_round_ = number - 1;
  newcomers_ = 0;
}

std::optional<Round> Rendezvous::join() {
  auto deadline = Clock::now() + options_.timeout;
  newcomers_ = count_newcomers();
  for (;;) {
    const int number = newest_round();
    if (options_.rank_unit > 0) find_attempt_before(number);
    Waiting waiting(number, prefix(number), options_.silence, deadline);
    if (wait_for_place(waiting)) {
      Round round = describe(waiting, waiting.count);
      if (start_together(waiting, round)) {
        options_.self.previous_rank = round.node_rank;
        options_.self.previous_round = waiting.number;
        options_.self.previous_slot = waiting.slot;
        previous_count_ = waiting.count;
        previous_round_ = waiting.number;
        return round;
      }
    }
    const bool had_no_place = waiting.count > 0 && waiting.slot >= waiting.count;
    const std::optional<RoundEnd> end = had_no_place ? ended(waiting.number) : std::nullopt;
    const bool is_over = end && (end->kind == EndKind::Done || end->kind == EndKind::Stop);
    if (had_no_place && (waiting.interrupted || is_over)) store_.add(waiting.prefix + "left", 1);
    if (is_over) {
      ended_without_us_ = end;
      return std::nullopt;
    }
    if (end) deadline = Clock::now() + options_.timeout;  // it has waited for others, not they for it
    // It may be the first to join again, and then waits for those who took part before.
    if (end && end->kind == EndKind::Restart) {
      previous_count_ = waiting.count;
      previous_round_ = waiting.number;
      newcomers_ = count_newcomers();
    }
    if (waiting.interrupted) {
      if (waiting.slot < waiting.count || waiting.count == 0) declare_stale(waiting, "interrupted");
      return std::nullopt;
    }
  }
}

RoundEnd Rendezvous::end(const Round& round, const RoundEnd& wanted) {
  return RoundEnd::from_text(store_.set_if_missing(prefix(round.number) + "end", wanted.to_text()));
}

void Rendezvous::finish(const Round& round, int code) {
  const std::string keys = prefix(round.number);
  store_.set(fmt::format("{}outcome/{}", keys, round.own().slot), std::to_string(code));
  const auto count = static_cast<int64_t>(round.nodes.size());
  if (store_.add(keys + "finished", 1) < count) return;
  int worst = 0;  // whatever is not 0; an interruption whose work is saved only where nothing else is wrong
  for (int64_t slot = 0; slot < count; ++slot) {
    const int outcome =
        std::atoi(store_.get(fmt::format("{}outcome/{}", keys, slot), options_.silence).c_str());
    if (worst == 0 || worst == static_cast<int>(ExitCode::Interrupted))
      worst = outcome != 0 ? outcome : worst;
  }
  RoundEnd all{worst == 0 ? EndKind::Done : EndKind::Stop, worst, "", 0};
  if (const auto given = store_.try_get(keys + "interrupt")) all.rank = parse_signal_and_rank(*given).second;
  if (const auto noted = store_.try_get(keys + "interrupted")) all.rank = std::atoi(noted->c_str());
  if (worst == static_cast<int>(ExitCode::Interrupted) && is_regrouping(round) &&
      !store_.try_get(keys + "interrupt"))
    all = {EndKind::Restart, 0, "", round.restarts + 1, 0, -1, round.returns + 1};
  end(round, all);
}

bool Rendezvous::is_regrouping(const Round& round) {
  return store_.try_get(prefix(round.number) + "regroup").has_value();
}

void Rendezvous::regroup(const Round& round) { store_.set(prefix(round.number) + "regroup", "1"); }

void Rendezvous::interrupt(const Round& round, int signal, int rank) {
  store_.set_if_missing(prefix(round.number) + "interrupt", fmt::format("{} {}", signal, rank));
}

void Rendezvous::note_interrupted(const Round& round, int rank) {
  store_.set_if_missing(prefix(round.number) + "interrupted", std::to_string(rank));
}

void Rendezvous::note_stopped(const Round& round, int rank, int signal) {
  const std::string key = prefix(round.number) + "stopped";
  if (signal != 0) {
    store_.set(key, fmt::format("{} {}", signal, rank));
  } else if (stopped_rank(round) && stopped_rank(round)->second == rank) {
    store_.remove(key);
  }
}

std::optional<std::pair<int, int>> Rendezvous::stopped_rank(const Round& round) {
  const std::optional<std::string> text = store_.try_get(prefix(round.number) + "stopped");
  return text ? std::optional(parse_signal_and_rank(*text)) : std::nullopt;
}

void Rendezvous::leave(const Round& round) { store_.add(prefix(round.number) + "left", 1); }

void Rendezvous::wait_until_left(const Round& round, milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  const std::string keys = prefix(round.number);
  const int64_t all = std::max(store_.add(keys + "joined", 0), static_cast<int64_t>(round.nodes.size()));
  while (store_.add(keys + "left", 0) < all && Clock::now() < deadline)
    std::this_thread::sleep_for(milliseconds(10));
}

}  // namespace tandem
