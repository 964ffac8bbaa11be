// What a process that was killed left undone in a store of checkpoints is done when the next one starts.
#pragma once

#include <string>
#include <vector>

#include "tandem/checkpoint/reader.h"

namespace tandem {

// Clears leftovers of the dead. Where the run goes on from the store's newest good checkpoint, `restored`,
// it also points `latest` to it and removes what is older than the `keep` newest (0: none), which the save
// that was killed would have done; those that `restored` has skipped neither count nor go. Returns a sentence
// for whatever could not be done: none of it keeps a run from going on.
std::vector<std::string> mend_checkpoints(const StoreRef& store, int keep, const Latest& restored);

}  // namespace tandem
