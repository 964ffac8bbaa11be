// Who may add checkpoints to a store that several runs can reach. Before a checkpoint goes there, its run
// puts the object claim-SEQUENCE, which only one can (Store::put_new): two runs never both write the newest.
// The loser learns who was faster, and stops.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tandem/store/store.h"

namespace tandem {

struct Claim {
  int64_t sequence = 0;  // of the checkpoint, see Manifest
  std::string run;       // who: the same for all processes of a run, other for each run directory
  std::string host;
  std::string time;
};

// "a run on node-b (2026-11-18T05:07:20Z)"
std::string describe(const Claim& claim);

std::optional<Claim> newest_claim(const StoreRef& store);

// Gets `sequence` for the run; it may be the run's already. Throws DataError where another has it or a later
// one.
void take_claim(const StoreRef& store, const std::string& run, int64_t sequence);

// Throws DataError where another run has taken a later one meanwhile.
void check_claim(const StoreRef& store, const std::string& run, int64_t sequence);

// Those that have served their time: all but the newest.
std::vector<std::string> old_claims(const StoreRef& store);

}  // namespace tandem
