// Says which rank hinders the others (rank_watch.h): on the terminal, in the run's directory, and to the
// supervisor, which ends the attempt. Keeps the other nodes' launchers informed of the ranks here.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/launch/places/hang_file.h"
#include "tandem/launch/places/rank_watch.h"
#include "tandem/launch/supervisor.h"

namespace tandem {

class VerdictDesk {
 public:
  static constexpr std::chrono::milliseconds kLook{250};

  // Null where nobody is watched.
  static std::unique_ptr<VerdictDesk> make(const AttemptSetup& setup, Terminal& terminal, OtherNodes* others);

  // Looks, if it is time to. What is returned is reason enough to end the attempt, and has been told.
  std::optional<Verdict> look(std::span<const RankWatch::Condition> conditions);
  void tell_dead(int rank);  // of those here
  void write();              // what could not be written yet, for want of a directory

 private:
  VerdictDesk(const AttemptSetup& setup, Terminal& terminal, OtherNodes* others);
  void tell(const Verdict& verdict);

  Terminal& terminal_;
  OtherNodes* const others_;
  const std::string node_;
  RankWatch watch_;
  std::deque<VerdictRecord> unwritten_;
  double looked_s_ = 0;
};

}  // namespace tandem
