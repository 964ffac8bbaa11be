// checkpoint.store of a run: each checkpoint that is safe in the run directory goes there while training goes
// on (checkpoint/stores/upload.h). One goes at a time: what is saved meanwhile stays local, and the newest
// follows when there is time, at the latest at the end of the run. Without a store in the config nothing
// happens.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "tandem/checkpoint/stores/alive.h"
#include "tandem/checkpoint/stores/upload.h"
#include "tandem/checkpoint/writer.h"
#include "tandem/train/open_run.h"
#include "tandem/train/storage/run_mirror.h"

namespace tandem {

// Before anything is compiled; all ranks together. Throws IoError where the store cannot be reached, and
// DataError where the checkpoints in it are another run's and this run does not go on from them, or that run
// still lives. Calls `while_waiting`, which may throw, while it is not known whether it does.
void check_store(const Config& config, const TrainOptions& options, const World& world,
                 const std::function<void()>& while_waiting);

class StoreBehind {
 public:
  // All ranks together, when the run directory is there.
  StoreBehind(OpenRun& run, const SaveGroup& group);
  ~StoreBehind();

  void begin(CheckpointWriter& writer);     // before the first save
  void catch_up();                          // all ranks: begins what an earlier process had no time for
  void before_save(int64_t step);           // all ranks: whether this one will go to the store
  void on_saved(const SaveReport& report);  // by the thread that saves
  void tell();                              // what has come to pass; throws where another run has the store
  void finish();  // all ranks, when no save is under way: the newest and the best are there, or it throws

 private:
  void on_ended(const UploadReport& report);
  void upload_again(const std::string& name);     // from the run directory; all ranks
  void bring(const std::string& name);            // likewise, and throws where it does not get there
  bool is_stored(const std::string& name) const;  // just as it is in the run directory
  std::string best_local() const;                 // empty: none is kept
  std::string new_token() const;

  OpenRun& run_;
  const World& world_;
  std::string address_;
  std::unique_ptr<AliveSign> alive_;              // rank 0, with a store
  std::unique_ptr<RunMirror> mirror_;             // none: no store
  std::unique_ptr<CheckpointUploader> uploader_;  // likewise; wakes the mirror
  int64_t newest_there_ = 0;                      // its sequence, when the run began
  std::mutex mutex_;                              // of all below
  std::set<int64_t> wanted_;                      // steps of saves that are to go
  std::optional<WrittenPart> written_;            // of the save under way
  std::vector<UploadReport> ended_;
  std::string newest_local_;   // rank 0: the last that was saved
  std::string newest_stored_;  // rank 0: the last that has arrived
};

}  // namespace tandem
