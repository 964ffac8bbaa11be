// Ranks that come and go: how many the next attempt has.
#pragma once

#include <span>

#include "tandem/launch/failure.h"

namespace tandem {

// Of the ranks that ended so, those that can go on: without those that failed by themselves, were stopped or
// hung, in multiples of `unit`, at least one. Where all have failed, it was not for want of any: all are
// tried again.
int ranks_left(std::span<const RankEnd> ends, int unit);

// Whether each has done its work.
bool all_done(std::span<const RankEnd> ends);

}  // namespace tandem
