// All ranks wait in collectives, and nobody comes: a message was lost, or their calls stand in each other's
// way. Nobody is to blame that is seen from here; what each waits for is told.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "tandem/launch/places/whereabouts.h"

namespace tandem {

struct AllWait {
  double for_s = 0;      // that nothing has changed on any rank
  bool certain = false;  // every rank waits for one that has not come and cannot: no slow network does that
  std::string who;       // "rank 0 in recv of block 2 (pass 1 of 2, command 31 of 120) for rank 1; ..."
};

// Nothing where a rank computes, is at its own code, has ended, or is not known.
std::optional<AllWait> find_all_wait(std::span<const Whereabouts> ranks);

}  // namespace tandem
