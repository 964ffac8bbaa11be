// Saves checkpoints that appear whole or not at all, either before save() returns or, given a staging
// buffer, behind the running training step. With many ranks every one has a writer: each writes the pieces it
// owns into a file of its own, at the same time, and rank 0 commits when all are done (pending.h).
//
// What is promised at every moment, a kill or a full disk on any rank included: each step-* directory is
// whole, and no older checkpoint goes before the newer one that replaces it has reached the disk and was read
// back: its manifest, and every file that it names with its size. Where the disk has no room for another one,
// what the next save would push out goes before it; the last one never does.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "tandem/checkpoint/manifest.h"
#include "tandem/checkpoint/part.h"
#include "tandem/checkpoint/pending.h"
#include "tandem/checkpoint/piece.h"

namespace tandem {

class ThreadPool;

struct SaveReport {
  int64_t step = 0;
  std::filesystem::path directory;
  int64_t bytes = 0;      // rank 0: of all ranks; others: their own
  double snapshot_s = 0;  // training stood still
  double write_s = 0;     // until the checkpoint was safe on disk; ranks other than 0: until their part was
  std::string warning;    // an older checkpoint could not be removed; empty otherwise, and in on_saved
  bool is_best = false;
};

int64_t staging_bytes(std::span<const TensorView> tensors);

// What a rank has written of a save, before it is committed. The files may be read however long they are
// kept open.
struct WrittenPart {
  int64_t step = 0;
  std::string token;  // of this save alone, the same on every rank
  std::vector<std::pair<std::string, std::unique_ptr<ObjectReader>>> files;
  int64_t digest_block = 0;
  std::vector<TensorEntry> tensors;  // of which the files hold shards
};

class CheckpointWriter {
 public:
  using OnSaved = std::function<void(const SaveReport&)>;

  // Makes the store where it is missing; rank 0 clears what killed saves left in it, so no rank may save
  // before rank 0's writer is made: put a barrier there. `keep` is how many checkpoints stay (0: all), the
  // best one, which CheckpointMeta::is_best names, aside. The pool is used inside save() only, by the calling
  // thread. `on_saved` is called at the very moment in which a save is done, by the thread that wrote it.
  CheckpointWriter(StoreRef store, int keep, ThreadPool* pool = nullptr, SaveGroup group = {},
                   OnSaved on_saved = {});

  // Called by the thread that wrote a part, before the save is committed; before the first save.
  void set_on_written(std::function<void(WrittenPart)> on_written) { on_written_ = std::move(on_written); }
  // Sequences of saves are behind this one, which a store has seen.
  void go_on_behind(int64_t sequence) { next_sequence_ = std::max(next_sequence_, sequence + 1); }

  // Waits for a save under way, but only seconds for other ranks that do nothing: they may be dead. An error
  // nobody asked for goes to stderr.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Every rank calls it, in the same order, with the pieces that it owns: each element of each tensor is
  // owned by exactly one rank. First waits for an earlier save and rethrows its error. With staging memory
  // (at least staging_bytes) it returns when the pieces have been copied there (or lie there already, one
  // after the other, high halves before low ones), and the memory must stay until wait() or the next save;
  // without, when the checkpoint of all ranks is on disk. Throws IoError on the rank that failed, and
  // CommError naming it and why on every other that waits for the commit; nothing half-written remains. Only
  // rank 0's meta counts.
  void save(const CheckpointMeta& meta, std::span<const TensorView> tensors,
            std::span<std::byte> staging = {});

  // For a save that is under way: on rank 0 until it is committed, on others until their part is on disk.
  // Rethrows its error.
  void wait();
  void wait_committed();  // on every rank until rank 0 has committed
  void close();           // wait(), with little patience for parts of others; there is no save after it

  // The saves finished since the last call, also while another is under way. Does not wait; rethrows the
  // error of one that failed.
  std::vector<SaveReport> poll();

 private:
  struct Kept {
    int64_t sequence;
    std::string name;
    int64_t bytes;     // of all ranks
    bool own = false;  // saved by this writer, and read back
  };
  struct Abandoned {
    std::string name;
    std::string token;
  };
  struct Save {
    CheckpointMeta meta;
    SaveGroup group;  // its token is of this save alone
    Part part;
    int64_t bytes = 0;
    std::vector<TensorView> memory;  // what the file consists of
    double snapshot_s = 0;
  };
  void await_space(int64_t bytes, const std::string& name);
  void make_room(int64_t bytes);
  Save snapshot(const CheckpointMeta& meta, std::span<const TensorView> tensors,
                std::span<std::byte> staging);
  void write(const Save& save);
  int64_t commit(const Save& save, PendingSave& pending, int64_t sequence);
  static WrittenPart written(const Save& save, const Draft& draft);
  void leave_pending(const std::function<void(const PendingSave&)>& check);
  void drop_old(const Kept& newest, bool is_best, SaveReport& report);
  // Those that may go when `newest` others stay, oldest first: not what `best` stands for.
  std::vector<Kept> older_than(size_t newest) const;

  StoreRef store_;
  int keep_;
  ThreadPool* pool_;
  SaveGroup group_;
  int64_t num_saves_ = 0;  // counted alike on every rank, whatever becomes of them
  int64_t next_sequence_ = 1;
  std::string hostname_;
  std::string hardware_;
  OnSaved on_saved_;
  std::function<void(WrittenPart)> on_written_;
  std::mutex reports_mutex_;
  std::vector<SaveReport> reports_;
  // All below are the background thread's while it runs.
  std::vector<Kept> kept_;               // oldest first
  std::string best_;                     // the one of them that `best` stands for, if any
  std::vector<Abandoned> abandoned_;     // failed saves that some rank may not have seen
  std::unique_ptr<PendingSave> joined_;  // ranks other than 0: where their last part lies
  int64_t total_bytes_ = 0;              // rank 0: of all ranks, in the newest
  std::exception_ptr failure_;
  std::atomic<bool> finished_{false};
  std::atomic<bool> closing_{false};
  std::thread background_;
};

}  // namespace tandem
