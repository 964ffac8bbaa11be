// What `tandem inspect` shows: a checkpoint as a table, and how two of them differ.
#pragma once

#include <string>
#include <vector>

#include "tandem/checkpoint/manifest.h"

namespace tandem {

// Step, epoch, loss, time, machine and sizes; with `tensors`, a line for each of them too.
std::string describe_checkpoint(const Manifest& manifest, bool tensors);

struct Difference {
  std::string tensor;
  std::string what;  // "only in the first", "shape: [2] and [3]", "values"
};

// Tensors that are not bit for bit the same, a's order first. Reads digests, not data. Tensors without a
// digest of the whole are compared by their shards, so the same values cut differently count as different.
std::vector<Difference> compare(const Manifest& a, const Manifest& b);

}  // namespace tandem
