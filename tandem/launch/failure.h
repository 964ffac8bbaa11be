// How ranks ended, which of them failed first of all, and how that is told.
//
// When one rank fails, the others soon fail too because a peer is gone; what a user needs is the first. Exits
// that are noticed within a second of each other may be seen in the wrong order (on several nodes above all),
// so among those an end that a lost peer cannot cause comes first: a fatal signal, or an exit code that says
// what is wrong.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tandem {

struct RankEnd {
  int rank = 0;
  int exit_code = 0;
  int signal = 0;       // nonzero: died of it, and exit_code means nothing
  bool told = false;    // ended only after it was told to stop
  bool killed = false;  // did not stop when told
  double at_s = 0;      // since the attempt began
  std::vector<std::string> last_lines;

  bool failed() const;            // not where it was interrupted and saved its work
  std::string last_line() const;  // without "tandem: error: "; may be empty
};

// Codes that say "starting again changes nothing": bad usage or config, does not fit, bad data.
bool is_final_code(int exit_code);

// Whether this end cannot be the consequence of a lost peer.
bool is_own_fault(const RankEnd& end);

// The rank whose failure came first; null where none failed before it was told to stop.
const RankEnd* root_cause(std::span<const RankEnd> ends);

std::string describe_ranks(std::vector<int> ranks);  // "rank 3", "ranks 0-3, 5"
std::string describe_exit(const RankEnd& end);       // "exit code 1", "signal 9 (SIGKILL)"

// "rank 3 failed with exit code 1: no such file". Ranks that ended in the same way with the same last line
// are named together.
std::string describe_failure(const RankEnd& root, std::span<const RankEnd> ends);

// What became of the others, one line for each different end: those that failed after it, and those that
// had to be killed. The root is null where it was on another node.
std::vector<std::string> describe_others(const RankEnd* root, std::span<const RankEnd> ends);

// Whether every rank failed with the root's exit code and last line: then that line alone says it all.
bool all_alike(const RankEnd& root, std::span<const RankEnd> ends);

}  // namespace tandem
