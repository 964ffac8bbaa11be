// How fast the links between nodes are, by sending bytes over them the way that training does: through a
// communicator.
//
// Every pair is measured in both directions. Pairs that have no end in common are measured at the same time,
// in rounds as of a tournament, so that N nodes take N rounds and not N * N.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tandem/comm/communicator.h"

namespace tandem::doctor {

struct Link {
  double bytes_per_s = 0;
  double latency_s = 0;  // half of the shortest round trip
  double clock_s = 0;    // by how much the receiver's clock is ahead
};
using LinkTable = std::vector<std::vector<Link>>;  // [from][to], as numbers of `ends`

struct LinkOptions {
  int pings = 30;
  int64_t first_bytes = int64_t{1} << 18;  // twice as many each time,
  int64_t most_bytes = int64_t{1} << 28;   // up to so many,
  double enough_s = 0.1;                   // or until sending takes so long
};

// Called by all ranks of the communicator with the same `ends`, which are ranks of it; all get the table.
LinkTable measure_links(Communicator& comm, const std::vector<int>& ends, const LinkOptions& options = {});

// What each rank says, in their order, on every rank.
std::vector<std::string> gather_texts(Communicator& comm, const std::string& text);

// Who meets whom in a round of a tournament of `count`: pairs of numbers, the smaller first.
std::vector<std::pair<int, int>> round_of(int count, int round);
int num_rounds(int count);

}  // namespace tandem::doctor
