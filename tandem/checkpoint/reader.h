// Loads checkpoints. Nothing that was read is believed before its digest has been compared with the one
// taken of the live tensor when it was saved. Any box may be asked for, by any number of ranks, whatever
// boxes the checkpoint was written in: that is what lets it go on in another mesh.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tandem/checkpoint/manifest.h"
#include "tandem/checkpoint/piece.h"

namespace tandem {

class ThreadPool;

// Whether a checkpoint may hold tensors that were not asked for (weights without the optimizer's state).
enum class Match { Exact, Subset };

// Throws DataError naming the first difference when the checkpoint is of another model. The targets are one
// rank's; `model` lists the tensors of all ranks, and where it is empty those of the targets are all.
void check_matches(const Manifest& manifest, std::span<const TensorTarget> targets,
                   Match match = Match::Exact, std::span<const LogicalTensor> model = {});

// check_matches, then reads straight into the targets, which may overlap and name a tensor several times.
// Throws DataError naming file and tensor; the targets' contents are undefined then.
void load(const Manifest& manifest, std::span<const TensorTarget> targets, ThreadPool* pool = nullptr,
          Match match = Match::Exact, std::span<const LogicalTensor> model = {});

// Reads every byte and compares every digest; throws DataError naming file and tensor.
void verify(const Manifest& manifest, ThreadPool* pool = nullptr);

struct Skipped {
  std::filesystem::path directory;
  std::string reason;
};

struct Latest {
  std::optional<Manifest> manifest;  // empty when the store holds no good checkpoint
  std::vector<Skipped> skipped;      // the bad ones met on the way: tell the user
};

// The newest checkpoint of a store that is whole: file sizes only, or digests as well.
enum class Check { Sizes, Digests };
Latest find_latest(const StoreRef& store, Check check, ThreadPool* pool = nullptr);

// How the ranks that load together come to the same checkpoint, though each reads only a part of it and only
// one may meet the damage. Both are called by every rank, in the same order.
struct LoadGroup {
  int rank = 0;
  std::function<std::string(const std::string&)> from_rank_0;  // gives every rank what rank 0 passed
  std::function<bool(bool)> all;                               // whether every rank passed true
};

// Loads the newest checkpoint that is good on every rank; each is read once. A damaged one is skipped, and
// rank 0 lists it; one of another model is a DataError, and so is a store whose checkpoints are all damaged.
// An empty store gives no manifest. Without a group this process is the only rank.
Latest load_latest(const StoreRef& store, std::span<const TensorTarget> targets, ThreadPool* pool = nullptr,
                   Match match = Match::Exact, std::span<const LogicalTensor> model = {},
                   const LoadGroup* group = nullptr);

}  // namespace tandem
