// Finds hardware that computes or remembers wrongly (checkpoint.replay): every so many steps one is taken
// twice from the same state, and what is left in memory has to be the same, bit for bit; and ranks of the
// data axis that hold the same tensors have to hold the same bits, then and before each checkpoint. Weights
// and optimizer states that the host reaches are, before each update, what the update before has left: they
// may lie on one rank alone. A difference ends the run, named by rank and tensor: it goes on from its last
// checkpoint, which was proven.
//
// The state to begin from is kept where asynchronous checkpoints have their copy.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tandem/comm/sent_digests.h"
#include "tandem/data/loader.h"
#include "tandem/runtime/session.h"
#include "tandem/train/step_runner.h"
#include "tandem/train/world.h"

namespace tandem {

class StateProof {
 public:
  static int64_t memory_bytes(const CompiledStep& step);

  // `every` 0: nothing is proven.
  StateProof(Session& session, const World& world, Loader& loader, StepRunner& runner, int64_t every,
             std::filesystem::path run_dir);

  bool is_due(int64_t step) const { return every_ > 0 && step % every_ == 0; }

  // Takes the step, twice where it is due, in `memory` of memory_bytes at least, which nobody uses. All ranks
  // call it together. Throws TrainError.
  StepResult take(int64_t step, std::span<std::byte> memory, const std::function<StepResult()>& run);

  // For the step runner: before it calls `then`, throws TrainError where state is not what was left there.
  std::function<void()> before_update(int64_t step, std::function<void()> then) const;

  // Throws TrainError where ranks that hold the same tensors hold other bits.
  void require_same_replicas(int64_t step) const;

 private:
  struct Item {
    std::string name;   // "blocks.0.qkv.weight in master:blocks.0"
    std::string first;  // its first element
    Slice slice;
    int64_t offset = 0, bytes = 0;
    uint64_t key = 0;     // the same on ranks that hold the same part; 0: each may have its own
    bool sealed = false;  // only an update changes it, and the host can look at it at once
  };
  uint64_t digest(const Item& item) const;
  std::vector<uint64_t> digests() const;
  void seal();
  void require_sealed(int64_t step) const;
  void copy_state(std::span<std::byte> memory, bool back) const;
  void require_same_twice(int64_t step, const std::vector<uint64_t>& first,
                          const std::vector<uint64_t>& second,
                          const std::optional<SentDigests::Difference>& sent) const;
  // Evidence, in the run's directory: what the digests were, and the bytes that this rank has now.
  void keep(int64_t step, const Item& item, const std::string& what) const;

  Session& session_;
  const World& world_;
  Loader& loader_;
  StepRunner& runner_;
  const int64_t every_;
  const std::filesystem::path run_dir_;
  std::vector<Item> items_;
  std::vector<uint64_t> seals_;  // of the sealed items, after the last update; empty before the first step
};

}  // namespace tandem
