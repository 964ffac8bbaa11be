// A save that is under way: a draft (store/draft.h) that all ranks fill together.
//   rank-00003.ckpt   a rank's data, growing
//   part-00003.json   what is in it: the rank is done
//   failed-00003      a rank could not save, and why: nobody waits for it any longer
//   left-00003        a rank has seen the failure; the last of all to see it removes the draft
// When all parts are there, rank 0 commits it with the manifest as its index.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tandem/store/draft.h"

namespace tandem {

// The ranks that save together. Several processes on one or many machines, or threads of one process.
struct SaveGroup {
  int rank = 0;
  int world_size = 1;
  std::string token;  // the same on every rank and another each time ranks are started; may be empty for one
  std::chrono::milliseconds timeout = std::chrono::minutes(10);    // for others that show no progress
  std::chrono::milliseconds poll = std::chrono::milliseconds(50);  // at most between two looks at a draft
  std::function<void()> check_peers = [] {};  // throws where one is known to be lost; asked while waiting
  int64_t total_bytes = 0;                    // of all ranks together, in a save; 0: not known
};

class PendingSave {
 public:
  // Begins a draft of the bundle `name`, or joins the ranks that are there already.
  PendingSave(const StoreRef& store, const std::string& name, const SaveGroup& group);

  // A single rank removes it unless it was committed. Of many, the last to leave a failed save does; a rank
  // that goes before the outcome is known leaves it as it is.
  ~PendingSave();
  PendingSave(const PendingSave&) = delete;
  PendingSave& operator=(const PendingSave&) = delete;

  std::filesystem::path path() const { return draft_->description(); }
  std::string target() const { return store_->description(name_); }
  Draft& draft() { return *draft_; }

  // This rank is done. From then on rank 0 may commit at any moment: nothing of this rank goes any more, and
  // whatever can fail comes before.
  void add_part(std::string_view text);

  // Rank 0: waits for the parts of all others and gives their names, by rank. Throws CommError naming the
  // rank that failed and its reason, or IoError with those of which there is none though nothing has grown
  // for as long as `patience` says at the time.
  std::vector<std::string> await_parts(const std::function<std::chrono::milliseconds()>& patience) const;

  // Rank 0: commits the draft with this index, without the parts; an older one of that name stays until
  // drop_replaced.
  void commit(std::string_view index);
  void drop_replaced() noexcept;  // for whoever has read back what was committed

  // Others: wait until rank 0 has committed; it is durable then. Throw as await_parts does.
  void await_commit() const;

  // Takes back what this rank has written and tells the others why, unless one of them has failed before.
  // Does nothing once this rank's part is in place.
  void fail(const std::string& reason) noexcept;
  void throw_if_failed() const;  // CommError "rank 3: ..."; IoError where it was this rank

 private:
  struct Contents {
    std::vector<int> parts, failed, left;  // ranks
    int64_t progress = 0;                  // changes whenever any rank gets on
  };
  Contents look() const;
  void throw_if_failed(const Contents& contents) const;
  std::vector<std::string> part_names() const;  // of all but rank 0
  bool is_past_open() const noexcept;

  StoreRef store_;
  std::string name_;
  SaveGroup group_;
  std::unique_ptr<Draft> draft_;
  bool part_in_place_ = false;
  bool committed_ = false;
};

}  // namespace tandem
