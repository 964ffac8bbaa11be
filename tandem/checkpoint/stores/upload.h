// Local first, store behind: a checkpoint that is safe in the run directory is copied to a store while
// training goes on. Every rank copies the file that it wrote; rank 0 puts the manifest when all are there.
// Each byte is compared on its way with the digest of the live tensor, so what is in the store is what was in
// memory.
//
// A kill at any moment leaves whole checkpoints in the store and parts that no manifest names: the next
// upload that is committed removes them, and `tandem gc` shows them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tandem/checkpoint/manifest.h"
#include "tandem/checkpoint/pending.h"

namespace tandem {

// Bytes of a file with a digest of their own.
struct DigestedRange {
  int64_t offset = 0;
  int64_t bytes = 0;
  std::string digest;
};
// In the order of the file.
std::vector<DigestedRange> digested_ranges(const std::vector<TensorEntry>& tensors, const std::string& file,
                                           int64_t digest_block);

// Copies `source`, calling `told` with the bytes of each piece. Throws DataError where a range differs from
// its digest; what was written so far is not to be finished then.
void copy_checked(const ObjectReader& source, std::span<const DigestedRange> ranges, ObjectWriter& dst,
                  const std::function<void(int64_t)>& told);

struct UploadFile {
  std::string name;
  std::unique_ptr<ObjectReader> source;  // stays readable though the checkpoint is removed meanwhile
  std::vector<DigestedRange> ranges;
};

struct UploadJob {
  std::string name;   // of the checkpoint
  std::string token;  // of this upload alone, the same on every rank
  int64_t step = 0;
  std::vector<UploadFile> files;     // this rank's
  std::optional<Manifest> manifest;  // rank 0: of the whole
  bool is_best = false;              // rank 0: `best` stands for it from now on
};

struct UploadReport {
  int64_t step = 0;
  std::string address;
  int64_t bytes = 0;    // this rank's
  double seconds = 0;   // since it began
  std::string warning;  // an older checkpoint could not be removed; or why it is not there, where `failed`
  bool failed = false;
};

class CheckpointUploader {
 public:
  struct Events {  // called by the uploader's thread
    std::function<void(int64_t step, int64_t done, int64_t total)> progress;  // every few seconds
    std::function<void(const UploadReport&)> ended;
  };

  // `run` is for claim.h. `keep` is how many checkpoints stay there (0: all), and the best beside them.
  // `memory` is what its writers use.
  CheckpointUploader(StoreRef store, std::string run, int keep, SaveGroup group, std::span<std::byte> memory,
                     Events events);
  ~CheckpointUploader();  // gives up what is under way
  CheckpointUploader(const CheckpointUploader&) = delete;
  CheckpointUploader& operator=(const CheckpointUploader&) = delete;

  // Every rank, in the same order, each when it was idle. Trouble is told by `ended`: the checkpoint is safe
  // where it is, and the next upload is another try.
  void begin(UploadJob job);
  bool idle() const { return !busy_.load(std::memory_order_acquire); }
  void wait();
  // Throws DataError where another run has taken the store.
  void check() const;

 private:
  struct Kept {
    int64_t sequence;
    std::string name;
  };
  void work(UploadJob& job);
  void upload(UploadJob& job, UploadReport& report);
  void copy_files(UploadJob& job, PendingSave& pending, UploadReport& report);
  void commit(UploadJob& job, PendingSave& pending);
  void drop_old(const UploadJob& job, UploadReport& report);
  void read_kept();
  template <typename Action>
  void claiming(Action&& action);  // remembers that another run has the store

  StoreRef store_;
  std::string run_;
  int keep_;
  SaveGroup group_;
  Events events_;
  std::optional<std::vector<Kept>> kept_;  // oldest first; read when first needed
  std::atomic<bool> busy_{false};
  std::atomic<bool> ending_{false};
  mutable std::mutex mutex_;
  std::string lost_;  // why this run may not write there any more
  std::thread thread_;
};

// Removes parts of checkpoints that no manifest names, claims but the newest, and signs of
// life of others. For whoever has claimed the
// store and has no upload under way.
void tidy_store(const StoreRef& store);

}  // namespace tandem
