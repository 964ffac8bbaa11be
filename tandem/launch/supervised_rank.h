// What the supervisor knows of one rank.
#pragma once

#include <chrono>
#include <optional>

#include "tandem/launch/child_process.h"
#include "tandem/launch/places/rank_watch.h"
#include "tandem/launch/supervisor.h"

namespace tandem {

struct SupervisedRank {
  using Clock = std::chrono::steady_clock;

  SupervisedRank(const RankSetup& setup, Terminal& terminal, LineFilter* filter)
      : number(setup.rank),
        notes(setup.notes),
        output(setup.rank, setup.log, terminal, setup.show_out, setup.show_err, setup.prefix, filter) {}
  int number;
  RankNotes notes;
  RankOutput output;
  Child child;
  int stopped = 0;  // by this signal; it may have gone on since
  double stopped_at_s = 0;
  std::optional<Clock::time_point> went_on;
  bool told = false;
  bool killed = false;
  std::optional<Verdict> verdict;
  std::optional<RankEnd> end;

  int& fd(OutputStream stream) { return stream == OutputStream::Out ? child.out : child.err; }

  // What was found out about it, as its end tells it.
  void note_verdict(RankEnd& about) const {
    if (verdict) (verdict->blames() ? about.hinders : about.waits) = verdict->cause();
  }

  // For who watches it. One that was told to end was made to go on for that, and may be stopped once more.
  RankWatch::Condition condition() const {
    if (end) return {};
    return {child.pid, told ? process_facts(child.pid).state == 'T' : stopped != 0 && !went_on};
  }
};

}  // namespace tandem
