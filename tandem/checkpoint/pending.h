// The directory of a save that is under way, .tmp-step-00000100-TOKEN/, which all ranks fill together:
//   rank-00003.ckpt   a rank's data, growing
//   part-00003.json   what is in it: the rank is done
//   manifest.json     written by rank 0 when all are done, after which it renames the directory
//   failed-00003      a rank could not save, and why: nobody waits for it any longer
//   left-00003        a rank has seen the failure; the last of all to see it removes the directory
// Every rank holds a shared lock on it while it lives, so that it is told from what killed ranks left behind.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace tandem {

// The ranks that save together. Several processes on one or many machines, or threads of one process.
struct SaveGroup {
  int rank = 0;
  int world_size = 1;
  std::string token;  // the same on every rank and another each time ranks are started; may be empty for one
  std::chrono::milliseconds timeout = std::chrono::minutes(10);  // for others that show no progress
  std::function<void()> check_peers = [] {};  // throws where one is known to be lost; asked while waiting
};

class PendingDirectory {
 public:
  // Creates folder/.tmp-NAME-TOKEN, or joins the ranks that are there already.
  PendingDirectory(const std::filesystem::path& folder, const std::string& name, const SaveGroup& group);

  // A single rank removes it unless it was committed. Of many, the last to leave a failed save does; a rank
  // that goes before the outcome is known leaves it as it is.
  ~PendingDirectory();
  PendingDirectory(const PendingDirectory&) = delete;
  PendingDirectory& operator=(const PendingDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path target() const { return folder_ / name_; }

  // This rank is done. From then on rank 0 may commit at any moment: nothing of this rank goes any more, and
  // whatever can fail comes before.
  void add_part(std::string_view text);

  // Rank 0: waits for the parts of all others, by rank. Throws CommError naming the rank that failed and its
  // reason, or IoError with those of which there is none though nothing has grown for as long as `patience`
  // says at the time.
  std::vector<std::filesystem::path> await_parts(
      const std::function<std::chrono::milliseconds()>& patience) const;

  // Rank 0: removes the parts, syncs, and renames to folder/name, in place of an older one of that name,
  // which stays aside until drop_replaced.
  void commit();
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
  bool is_at(const std::filesystem::path& path) const;  // this very directory, whatever its name now

  std::filesystem::path folder_;
  std::string name_;
  std::filesystem::path path_;
  std::filesystem::path replaced_;  // where an older checkpoint of that name is after a commit
  SaveGroup group_;
  int lock_ = -1;
  bool part_in_place_ = false;
  bool committed_ = false;
};

}  // namespace tandem
