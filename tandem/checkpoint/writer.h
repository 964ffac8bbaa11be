// Saves checkpoints that appear whole or not at all, either before save() returns or, given a staging
// buffer, behind the running training step.
//
// What is promised at every moment, a kill or a full disk included: each step-* directory is whole, and no
// older checkpoint goes before the newer one that replaces it has reached the disk.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "tandem/base/dtype.h"
#include "tandem/base/shape.h"
#include "tandem/checkpoint/manifest.h"

namespace tandem {

class ThreadPool;

struct TensorView {
  std::string name;
  DType dtype = DType::F32;
  Shape shape;
  std::span<const std::byte> bytes;
};

struct SaveReport {
  int64_t step = 0;
  std::filesystem::path directory;
  int64_t bytes = 0;
  double snapshot_s = 0;  // training stood still
  double write_s = 0;     // until the checkpoint was safe on disk
  std::string warning;    // an older checkpoint could not be removed; empty otherwise
};

int64_t staging_bytes(std::span<const TensorView> tensors);

class CheckpointWriter {
 public:
  // Creates `folder` where it is missing and clears what killed saves left in it. `keep` is how many
  // checkpoints stay (0: all). The pool is used inside save() only, by the calling thread.
  CheckpointWriter(std::filesystem::path folder, int keep, ThreadPool* pool = nullptr);
  ~CheckpointWriter();  // waits; an error nobody asked for goes to stderr
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // First waits for an earlier save and rethrows its error. With staging memory (at least staging_bytes)
  // it returns when the tensors have been copied there, and the memory must stay until wait() or the next
  // save; without, when the checkpoint is on disk. Throws IoError; nothing half-written remains.
  void save(const CheckpointMeta& meta, std::span<const TensorView> tensors,
            std::span<std::byte> staging = {});

  void wait();  // for a save that is under way; rethrows its error

  // The saves finished since the last call. Does not wait; rethrows the error of one that failed.
  std::vector<SaveReport> poll();

 private:
  struct Kept {
    int64_t sequence;
    std::filesystem::path directory;
  };
  void check_space(int64_t bytes, const std::string& name) const;
  Manifest describe(const CheckpointMeta& meta, std::span<const TensorView> tensors) const;
  void write(const Manifest& manifest, std::span<const std::span<const std::byte>> pieces, double snapshot_s);
  void drop_old(const Kept& newest, SaveReport& report);

  std::filesystem::path folder_;
  int keep_;
  ThreadPool* pool_;
  int64_t next_sequence_ = 1;
  std::string hostname_;
  std::string hardware_;
  std::vector<Kept> kept_;  // oldest first; the background thread's while it runs, as are the two below
  std::vector<SaveReport> reports_;
  std::exception_ptr failure_;
  std::atomic<bool> finished_{false};
  std::thread background_;
};

}  // namespace tandem
