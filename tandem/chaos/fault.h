// What is done to a run, and when: all of it follows from a seed and the trial's number, so that a trial can
// be had again.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::chaos {

enum class Kind {
  Kill,  // SIGKILL to a rank
  Stop,  // SIGSTOP to a rank; the others give it up
  Term,  // SIGTERM to the launcher, as a scheduler sends it; the run is started again
  Flip,  // all processes killed and a bit of the newest checkpoint turned; the run is started again
  Disk,  // a call of a rank for the run's files fails, or the disk is full or dead from then on
  Net    // a connection of a rank is cut, or it sends slowly, or not for a while
};
inline constexpr std::string_view kKindNames[] = {"kill", "stop", "term", "flip", "disk", "net"};

struct Fault {
  Kind kind = Kind::Kill;
  double at = 0;  // as a part of the time that an undisturbed run takes, from its very start
  int rank = 0;
  uint64_t where = 0;  // a number for whatever else is to be chosen
};

// "kill,stop": throws ConfigError naming what is unknown.
std::vector<Kind> parse_kinds(std::string_view text);
std::string_view name_of(Kind kind);

// The fault of trial `number`. Kinds take turns.
Fault choose_fault(uint64_t seed, int64_t number, const std::vector<Kind>& kinds, int num_ranks);

}  // namespace tandem::chaos
