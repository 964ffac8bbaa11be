// How ranks ended, which of them failed first of all, and how that is told.
//
// When one rank fails, the others soon fail too because a peer is gone; what a user needs is the first. Exits
// that are noticed within a second of each other may be seen in the wrong order (a rank tells its peers
// before it has ended itself), so among those an end that a lost peer cannot cause comes first: a fatal
// signal, or an exit code that says what is wrong. A rank that says itself that it missed a peer
// (comm/lost_peer.h) comes last.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tandem/launch/rank_output.h"

namespace tandem {

struct RankEnd {
  int rank = 0;
  int exit_code = 0;
  int signal = 0;          // nonzero: died of it, and exit_code means nothing
  bool told = false;       // ended only after it was told to stop
  bool killed = false;     // did not stop when told
  bool lost_peer = false;  // says that it failed for want of a peer
  bool is_ours = false;    // says that its exit code is one of tandem's
  int stopped = 0;         // SIGSTOP or the like: it had not gone on when the first of all failed
  double stopped_at_s = 0;
  std::string hinders;  // where it was when the launcher found that it hinders the others; else empty
  std::string waits;    // all ranks waited for each other, and nobody was to blame: what was told of them
  double at_s = 0;      // since the attempt began
  std::string message;  // out of its error file; may be empty
  std::vector<std::string> last_lines;
  Show shown = Show::Nothing;  // how the terminal has shown them

  bool failed() const;            // not where it was interrupted and saved its work
  bool is_final() const;          // a rank of tandem with a final code
  int code() const;               // the launcher's exit code where this is the cause
  std::string last_line() const;  // without "tandem: error: ", or its message; may be empty
  bool has_error_line() const;    // the last line begins with that
};

// Of a run that has ended, saved, before it would have cost more than its budget.
inline constexpr int kBudgetReached = 76;

// Codes by which tandem says "starting again changes nothing": bad usage or config, does not fit, bad data.
// Those of other programs mean what they like.
bool is_final_code(int exit_code);

// It was asked to stop, and has saved its work.
bool was_interrupted(const RankEnd& end);

// Whether this end cannot be the consequence of a lost peer.
bool is_own_fault(const RankEnd& end);

// One that hindered the others, else the rank whose failure came first; null where none failed before it was
// told to stop. A rank that was stopped (SIGSTOP) comes before those that missed a peer, and before any that
// failed a while later, unless a lost peer cannot cause that. Where all have missed a peer, it is the one
// that was told to end and ended with an error of its own: it took long to end.
const RankEnd* root_cause(std::span<const RankEnd> ends);

std::string describe_ranks(std::vector<int> ranks);  // "rank 3", "ranks 0-3, 5"
std::string describe_signal(int signal);             // "SIGKILL"
std::string describe_exit(const RankEnd& end);       // "exit code 1", "signal 9 (SIGKILL)"

// "rank 3 failed with exit code 1", "rank 3 was stopped (SIGSTOP)". Ranks that ended in the same way with the
// same last line are named together.
std::string describe_end(const RankEnd& root, std::span<const RankEnd> ends);
// The same with that line: "rank 3 failed with exit code 1: no such file". For a stopped rank it is that of
// the first who missed it.
std::string describe_failure(const RankEnd& root, std::span<const RankEnd> ends);

// What became of the others: one line for those that missed a peer, one for each different end of those that
// failed otherwise, and one for those that had to be killed. The root is null where it was on another node.
std::vector<std::string> describe_others(const RankEnd* root, std::span<const RankEnd> ends);

// Whether every rank failed with the root's exit code and last line: then that line alone says it all.
bool all_alike(const RankEnd& root, std::span<const RankEnd> ends);

// Whose last line tells of the root's failure: its own or, where it was stopped, that of the first who missed
// it.
const RankEnd& witness(const RankEnd& root, std::span<const RankEnd> ends);

// Whether the terminal has shown the witness' last line, of itself or of one that ended alike.
bool is_shown(const RankEnd& root, std::span<const RankEnd> ends);

// Whether nobody but the root has anything to say: the others missed a peer or stopped when told.
bool is_alone(const RankEnd& root, std::span<const RankEnd> ends);

}  // namespace tandem
