// Where a rank is, as its launcher tells it: read from the rank's page (comm/places/place_page.h), or out of
// another launcher's message.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "tandem/comm/places/place_page.h"

namespace tandem {

struct Whereabouts {
  struct Call {
    Axis axis = Axis::World;
    CallKind kind = CallKind::Collective;
    int64_t count = 0;    // of such calls, this one included
    bool inside = false;  // it has not come back yet
    int peer = -1;        // of a message: its rank in the world
    std::string name;     // "barrier run directory"
  };

  int rank = 0;
  std::string node;
  int64_t pid = 0;
  std::string state = "starting";  // as in status.json
  std::string phase = "starting";  // what the rank itself says, whatever is wrong with it
  int64_t step = 0;
  int64_t pass = 0, passes = 0;
  std::string program;      // pass, update, evaluation
  int64_t commands = 0;     // of it
  int64_t index = -1;       // of the command; -1: none, or none that is seen from outside
  std::string command;      // "all_gather"; of a call that is no command, its name
  int block = -1;           // -1: outside blocks
  bool collective = false;  // the command is one, or a message
  bool computes = false;    // on any stream
  std::string what;         // where there is no command
  double since_s = 0;
  std::vector<int> waiting_for;
  bool waits_for_late = false;  // one of those has not come to a collective that this rank stands in
  std::vector<Call> calls;
  MeshShape shape;
  int64_t steps_done = 0;
  double busy_ms = 0, busy_before_ms = 0;  // a step, without waits: of the last few, and of those before

  const Call* call() const;                   // the one it stands in; null where it stands in none
  std::vector<int> group(const Call&) const;  // ranks of the world
};

// As the page says; node, pid and times are the reader's. How many steps there are in a window of busy_ms:
inline constexpr int kBusySteps = 9;
Whereabouts read_whereabouts(const PlacePage& page, int rank);

// Whom each of them waits for: in a collective those who have not come to it; where all have come, those of
// the group who are stopped or stuck in it; in a message its peer.
void find_waits(std::span<Whereabouts> ranks);

// Those who wait for this rank, or for one who waits for it.
std::vector<int> waiters_of(int rank, std::span<const Whereabouts> ranks);

// "in all_gather of block 5 (pass 2 of 4, command 181 of 709)", "while it connects".
std::string describe_place(const Whereabouts& place);

nlohmann::json to_json(const Whereabouts& place);      // as status.json and hangs/ have it
nlohmann::json to_message(const Whereabouts& place);   // ... with all that another launcher needs
Whereabouts from_message(const nlohmann::json& json);  // what is missing or wrong is left as it is by default

}  // namespace tandem
