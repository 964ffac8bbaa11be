// Watches where the ranks of this node are, a few times a second, and says which of them hinders the others:
//
//   stopped   somebody stopped it (SIGSTOP), and it does not go on
//   stuck     a command that is no collective takes far longer than ever before, or its own code does
//   waiting   all ranks wait in collectives, and nothing moves: nobody is to blame (all_wait.h)
//   slow      it is busy for much longer than the others in each step; nothing is done about it
//
// What a command takes is learned from the steps before; of one that was never seen it is guessed from its
// operations and bytes. On a machine with too much to do, a command that lasts has to have had a core for a
// while too, beyond what it usually takes: that comes later there, but not as much later as its cores are
// overbooked. Time in which this process itself did not run, or a debugger held the rank, does not count.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tandem/comm/shared_region.h"
#include "tandem/launch/places/process_facts.h"
#include "tandem/launch/places/whereabouts.h"

namespace tandem {

struct Verdict {
  int rank = 0;
  std::string kind;  // stopped, stuck, slow, waiting, dead
  double for_s = 0;
  std::string line;                // one line for the user
  Whereabouts place;               // of the rank
  std::vector<int> waiters;        // who wait for it
  std::vector<Whereabouts> ranks;  // all that are known, it among them
  bool is_slow() const { return kind == "slow"; }
  std::string cause() const;  // why the attempt ends: the place; of ranks that all wait, the line
  bool blames() const { return kind != "waiting"; }
};

class RankWatch {
 public:
  struct Limits {
    double stopped_s = 5, stuck_s = 5;
    double own_code_s = 120;  // between commands: data, metrics, what a user has written
    double all_wait_s = 60;   // of all ranks, while no byte moves; where no network can be slow, stuck_s
  };
  struct Rank {
    int rank = 0;
    std::shared_ptr<SharedRegion> page;
  };
  // What the supervisor knows of each, in the order of the ranks.
  struct Condition {
    pid_t pid = 0;  // 0: it has ended
    bool stopped = false;
  };
  using Facts = std::function<ProcessFacts(pid_t)>;

  RankWatch(std::vector<Rank> ranks, std::string node, const Limits& limits, Facts facts = process_facts,
            std::function<double()> load = load_per_core);

  // What there is to say at this moment. `others` are the ranks of other nodes.
  std::vector<Verdict> look(double now_s, std::span<const Condition> conditions,
                            std::vector<Whereabouts> others);

  // One has died: what it was at.
  std::optional<Verdict> dead(int rank) const;

  // Of the last look: the ranks of this node, and of all nodes.
  std::string message() const;  // for other launchers
  static std::vector<Whereabouts> parse_message(const std::string& text);
  std::string run_directory() const;  // empty while it is not known

 private:
  // How long something has been as it is.
  struct Timer {
    uint64_t version = 0;
    double since_s = 0;
    std::optional<std::map<pid_t, double>> starved_at;  // when it was first seen to last
    double starved_s = 0;

    void restart(uint64_t seen, double now_s);
    double lasts_s(double now_s) const { return now_s - since_s; }
    double own_s(double now_s) const { return lasts_s(now_s) - starved_s; }  // without waits for a core
  };
  struct Watched {
    int rank = 0;
    std::shared_ptr<SharedRegion> page;
    std::optional<double> stopped_since;
    Timer streams[PlacePage::kStreams];
    std::string commands[PlacePage::kStreams];  // that the timers are about; empty: none that counts
    Timer all;                                  // any change at all
    std::map<std::string, double> longest;      // of commands that took long, by program and index
  };
  // One that is busy for longer than the others, from a step on, and how long each had waited for a core.
  struct Suspect {
    int rank = 0;
    int64_t steps_done = 0;
    std::vector<std::map<pid_t, double>> starved;  // of the ranks here
  };

  const PlacePage& page(const Watched& rank) const;
  void skip(double seconds);
  void measure(Timer& timer, double now_s, pid_t pid);
  void learn(Watched& rank, int stream, double now_s, pid_t pid);
  std::optional<double> stuck_for(Watched& rank, double now_s, pid_t pid, Whereabouts& place);
  std::optional<Verdict> find_waiting() const;
  std::optional<Verdict> find_slow(std::span<const Condition> conditions);
  bool is_slow_on_its_own(const Whereabouts& rank, std::span<const Condition> conditions);
  Verdict verdict(std::string kind, const Whereabouts& place, double for_s) const;
  void write_board();

  std::vector<Watched> ranks_;
  const std::string node_;
  const Limits limits_;
  const Facts facts_;
  const std::function<double()> load_;
  double looked_s_ = 0, boarded_s_ = 0;
  std::vector<Whereabouts> here_, everywhere_;
  std::optional<int> slow_;
  std::optional<Suspect> suspect_;
};

}  // namespace tandem
