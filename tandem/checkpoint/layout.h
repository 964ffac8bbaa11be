// The checkpoints folder of a run: step-00000100/, latest (a symbolic link to the newest), and while a save
// is under way .tmp-step-00000100-PID/. A step-* directory appears and disappears by a rename: whole or not
// at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tandem {

std::string checkpoint_name(int64_t step);  // "step-00000100"

// Every step-* directory, lowest step first. A missing folder has none.
std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& folder);

// A directory being filled. It is locked, so that others can tell it from one whose writer has died, and it
// is removed on the way out unless it was committed.
class PendingDirectory {
 public:
  PendingDirectory(const std::filesystem::path& folder, const std::string& name);
  ~PendingDirectory();
  PendingDirectory(const PendingDirectory&) = delete;
  PendingDirectory& operator=(const PendingDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void commit();  // syncs, and renames to folder/name, in place of an older one of that name

 private:
  std::filesystem::path folder_;
  std::string name_;
  std::filesystem::path path_;
  int lock_ = -1;
};

void point_latest(const std::filesystem::path& folder,
                  const std::string& name);  // at folder/name, atomically

void remove_checkpoint(const std::filesystem::path& checkpoint);

// Removes what writers that were killed left behind; leaves what a living one is filling.
void remove_leftovers(const std::filesystem::path& folder);

}  // namespace tandem
