// Loads checkpoints. Nothing that was read is believed before its digest has been compared with the one
// taken of the live tensor when it was saved.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tandem/checkpoint/manifest.h"

namespace tandem {

class ThreadPool;

struct TensorTarget {
  std::string name;
  DType dtype = DType::F32;
  Shape shape;
  std::span<std::byte> bytes;  // where it is to be loaded
};

// Whether a checkpoint may hold tensors that were not asked for (weights without the optimizer's state).
enum class Match { Exact, Subset };

// Throws DataError naming the first difference when the checkpoint is of another model.
void check_matches(const Manifest& manifest, std::span<const TensorTarget> targets,
                   Match match = Match::Exact);

// check_matches, then reads straight into the targets. Throws DataError naming file and tensor; the targets'
// contents are undefined then.
void load(const Manifest& manifest, std::span<const TensorTarget> targets, ThreadPool* pool = nullptr,
          Match match = Match::Exact);

// Reads every byte and compares every digest; throws DataError naming file and tensor.
void verify(const Manifest& manifest, ThreadPool* pool = nullptr);

struct Skipped {
  std::filesystem::path directory;
  std::string reason;
};

struct Latest {
  std::optional<Manifest> manifest;  // empty when the folder holds no good checkpoint
  std::vector<Skipped> skipped;      // the bad ones met on the way: tell the user
};

// The newest checkpoint of a checkpoints folder that is whole: file sizes only, or digests as well.
enum class Check { Sizes, Digests };
Latest find_latest(const std::filesystem::path& folder, Check check, ThreadPool* pool = nullptr);

// Loads the newest good checkpoint; each is read once. A damaged one is skipped; one of another model is
// a DataError, and so is a folder whose checkpoints are all damaged. An empty folder gives no manifest.
Latest load_latest(const std::filesystem::path& folder, std::span<const TensorTarget> targets,
                   ThreadPool* pool = nullptr, Match match = Match::Exact);

}  // namespace tandem
