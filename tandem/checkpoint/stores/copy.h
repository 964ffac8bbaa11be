// Copies of checkpoints and of other objects between stores. What is there already and right is not copied
// again, so a copy that was stopped goes on where it was.
#pragma once

#include <functional>
#include <string>

#include "tandem/checkpoint/manifest.h"

namespace tandem {

struct CopyReport {
  int64_t copied = 0, skipped = 0;  // checkpoints or objects
  int64_t bytes = 0;                // of those copied
};

// Each byte is compared on its way with the digest of the live tensor; the checkpoint appears at once, when
// all of it is there. `told` gets the bytes of each piece. Throws DataError where the source is damaged.
void copy_checkpoint(const Manifest& source, const StoreRef& dst, CopyReport& report,
                     const std::function<void(int64_t)>& told);

// Objects of a store without checkpoints, such as a data set's. Each is read back and compared; those with
// names that end in .json, which tell of the others, come last.
void copy_objects(const StoreRef& source, const StoreRef& dst, CopyReport& report,
                  const std::function<void(int64_t)>& told);

}  // namespace tandem
