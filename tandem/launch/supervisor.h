// One attempt on this node: starts the ranks, reads what they print and sees them to their end.
//
//   a rank fails     a moment later, in which whoever failed with it is noticed too, the others get SIGTERM
//                    and after a few seconds SIGKILL; a longer moment where it missed a peer, which is ending
//   SIGINT, SIGTERM  passed on; the ranks have a longer grace to save their work; a second one kills them
//                    (a scheduler's second SIGTERM means nothing: it has its own SIGKILL)
//   exit code 75     a rank was interrupted by somebody else: the others are told as if we had been
//   SIGSTOP          of a rank, by somebody else: said, and remembered until it goes on
//   a verdict        a rank hinders the others (places/rank_watch.h): as if it had failed
//
// Nothing is left when it returns: each signal goes to a rank's whole process group, and what a rank leaves
// behind there is killed at its end.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/comm/shared_region.h"
#include "tandem/launch/failure.h"
#include "tandem/launch/rank_notes.h"
#include "tandem/launch/rank_output.h"
#include "tandem/launch/signals.h"
#include "tandem/launch/terminal.h"

namespace tandem {

struct RankSetup {
  int rank = 0;
  std::vector<std::string> environment;
  std::filesystem::path log;
  RankNotes notes;
  Show show_out = Show::Nothing;
  Show show_err = Show::Nothing;
  std::string prefix = {};                  // of lines that are shown with one; "[rank N] " if empty
  std::shared_ptr<SharedRegion> page = {};  // where it says what it does; null: nobody looks
};

struct AttemptSetup {
  std::vector<std::string> program;
  std::vector<RankSetup> ranks;
  std::string heading;  // a line at the start of each log
  LineFilter* filter = nullptr;
  bool is_tandem =
      false;  // whose ranks save their work on SIGTERM, and know no other signals than those of a terminal
  double stuck_after_s = 0;   // how long a rank may hinder the others; 0: for ever
  bool is_scheduled = false;  // Slurm sends SIGTERM more than once, and SIGKILL itself when the time is up
  std::chrono::milliseconds grace{300000};        // after a forwarded signal
  std::chrono::milliseconds failure_grace{5000};  // after another rank's failure
  std::chrono::milliseconds agreement_grace{
      2000};  // for ranks to find the same bad config or data themselves
  std::chrono::milliseconds stopped_before{
      1000};  // a rank that goes on so shortly before a failure may be its cause
  std::optional<std::chrono::milliseconds> regroup_after;  // then ranks are to save and end: more are coming
};

struct AttemptResult {
  std::vector<RankEnd> ends;          // in the order of the setup
  int interrupted = 0;                // the signal that was passed on, or 0
  int interrupted_rank = -1;          // who was given it, where that was a rank here and not the launcher
  bool stopped_from_outside = false;  // another node ended the attempt
  bool regrouped = false;  // ranks were told to end so that more can join them, and nobody else was
};

// The other nodes, as the supervisor sees them. Methods are called by the supervising thread.
class OtherNodes {
 public:
  struct News {
    bool stop = false;      // the attempt is over
    bool is_final = false;  // ... for a reason that the ranks here may be about to find themselves
    int interrupt = 0;      // a signal that another node was given
    int rank = -1;          // ... one of its ranks and not its launcher
    bool regroup = false;   // ranks are to save and end: more are coming
  };
  virtual ~OtherNodes() = default;
  virtual int fd() const = 0;  // readable when there is news
  virtual News take() = 0;
  virtual void tell_failure(const RankEnd& root, const std::vector<RankEnd>& ends) = 0;
  virtual void tell_interrupt(int signal, int rank) = 0;     // rank: as in AttemptResult
  virtual void tell_interrupted_rank(int rank) = 0;          // ... and says so itself
  virtual void tell_regroup() {}                             // as in News
  virtual bool is_regrouping() { return false; }             // one has told so: ranks may have ended for it
  virtual void tell_stopped(int rank, int signal) = 0;       // by SIGSTOP; 0: it goes on
  virtual void share_places(const std::string& /*text*/) {}  // of the ranks here, for the others
  virtual std::vector<std::string> places() { return {}; }   // of the others' ranks, as they shared them
};

// Throws ConfigError where the program cannot be started.
AttemptResult supervise(const AttemptSetup& setup, SignalReader& signals, Terminal& terminal,
                        OtherNodes* others = nullptr);

}  // namespace tandem
