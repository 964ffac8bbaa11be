// How the launchers of several nodes come together for each attempt, part, and come together again, through a
// store. An attempt is a round; what belongs to it has keys of its own:
//
//   <id>/round           a round not later than the current one (where newcomers begin to look)
//   <id>/<n>/joined      counts the nodes that have joined; each has a slot
//   <id>/<n>/node/<s>    who is in slot s
//   <id>/<n>/beat/<s>    changes while the launcher in slot s lives
//   <id>/<n>/places/<s>  where the ranks of slot s are, about once a second
//   <id>/<n>/closed      how many slots take part: set by slot 0 when enough have joined
//   <id>/<n>/master      MASTER_ADDR:MASTER_PORT, by node rank 0
//   <id>/<n>/ready       counts the nodes that know all this: the barrier before the start
//   <id>/<n>/interrupt   a signal that one launcher was given, or one of its ranks: "15 3"; "15 -1"
//   <id>/<n>/interrupted the rank that has noted itself that it was given one
//   <id>/<n>/stopped     a rank that was stopped, and the signal: "19 3"
//   <id>/<n>/regroup     the ranks are to save and end, so that more can join them
//   <id>/<n>/finished    counts the nodes whose ranks are done, with their codes in outcome/<s>
//   <id>/<n>/end         how the round ended: the first to set it decides for all
//   <id>/<n>/left        counts the nodes that need the store no more: they have read the end, or no longer
//                        wait for a place
//
// A round whose launchers are gone (no beat changes any more) is ended by whoever finds it, so that an id can
// be used again after a crash.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/comm/key_store/key_store.h"
#include "tandem/launch/round.h"

namespace tandem {

struct RendezvousOptions {
  std::string id;
  NodeInfo self;                              // slot and previous_rank are filled in by join
  std::string master_addr;                    // empty: node 0's address
  int master_port = 0;                        // 0: a free one of node 0
  std::chrono::milliseconds timeout{600000};  // for enough nodes to join
  std::chrono::milliseconds last_call{3000};  // for more than the least
  std::chrono::milliseconds reunion{15000};   // for all of the attempt before: some still stop their ranks
  std::chrono::milliseconds silence{10000};   // without a beat: a launcher is gone
  int rank_unit = 0;                          // elastic ranks: an attempt has multiples of this; 0: all
  std::function<bool()> interrupted = [] { return false; };  // asked while waiting
  std::function<void(const std::string&)> notice = [](const std::string&) {
  };  // for waits a user wonders about
};

std::pair<int, int> parse_signal_and_rank(
    const std::string& text);  // "15 3"; the rank is -1 where there is none

// The nodes did not come together; of the store there is nothing to say.
class NotMet : public CommError {
 public:
  using CommError::CommError;
};

// Tells which launcher has shown no sign of life for too long, by the clock of this process alone. Time in
// which this process did not look, for want of a core or of an answer, counts little.
class BeatWatch {
 public:
  BeatWatch(std::string prefix, std::chrono::milliseconds silence)
      : prefix_(std::move(prefix)), silence_(silence) {}
  bool is_silent(KeyStore& store, int slot);  // asks the store

 private:
  struct Seen {
    std::string beat;
    std::chrono::steady_clock::time_point looked;
    std::chrono::steady_clock::duration silent_for{};
  };
  const std::string prefix_;
  const std::chrono::milliseconds silence_;
  std::map<int, Seen> seen_;
};

class Rendezvous {
 public:
  Rendezvous(KeyStore& store, RendezvousOptions options) : store_(store), options_(std::move(options)) {}

  // Waits for enough nodes and returns what they agree on; null where interrupted() said so, or where the
  // launch ended while this node waited for a place in it. Throws CommError where too few come, ConfigError
  // where they contradict each other.
  std::optional<Round> join();
  void offer(int num_ranks) { options_.self.num_ranks = num_ranks; }  // of this node, for the next round
  const std::optional<RoundEnd>& ended_without_us() const { return ended_without_us_; }

  // Ends the round as `wanted`, unless it has ended already; returns how it ended.
  RoundEnd end(const Round& round, const RoundEnd& wanted);
  // This node's ranks are done with `code`; the last node to say so ends the round.
  void finish(const Round& round, int code);
  // Where one has asked to regroup, and nobody to stop, that is a restart.
  void interrupt(const Round& round, int signal, int rank);
  void regroup(const Round& round);
  bool is_regrouping(const Round& round);
  void note_interrupted(const Round& round, int rank);
  void note_stopped(const Round& round, int rank, int signal);                // 0: it goes on
  std::optional<std::pair<int, int>> stopped_rank(const Round& round);        // signal and rank
  void leave(const Round& round);                                             // after the last round
  void wait_until_left(const Round& round, std::chrono::milliseconds limit);  // for who serves the store

  static std::string prefix(const std::string& id, int number);
  std::string prefix(int number) const { return prefix(options_.id, number); }

 private:
  struct Waiting;  // one round's joining, in rendezvous.cpp
  int newest_round();
  std::optional<RoundEnd> ended(int number);
  bool wait_for_place(Waiting& waiting);
  void close_if_enough(Waiting& waiting);
  std::chrono::milliseconds patience(const Waiting& waiting, int joined);
  int count_returned(const std::string& keys, int joined);
  bool has_all_who_live(const Waiting& waiting, int joined);
  bool has_enough_ranks(const Waiting& waiting, int joined);
  void find_attempt_before(int number);
  bool start_together(Waiting& waiting, Round& round);
  bool tick(Waiting& waiting, int num_slots);
  void declare_stale(const Waiting& waiting, const std::string& why);
  [[noreturn]] void give_up(const Waiting& waiting, const std::string& why);
  Round describe(const Waiting& waiting, int count);
  int count_newcomers();

  KeyStore& store_;
  RendezvousOptions options_;
  int next_round_ = 0;
  int restarts_ = 0;
  int previous_round_ = -1, previous_count_ = 0;  // the attempt before and its nodes
  int newcomers_ = 0;                             // who waited for a place in it
  std::optional<RoundEnd> ended_without_us_;
  int lost_ = 0, lost_slot_ = -1;  // of those, gone for good
  int returns_ = 0;
  std::optional<BeatWatch> previous_beats_;
};

}  // namespace tandem
