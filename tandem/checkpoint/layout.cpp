#include "tandem/checkpoint/layout.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "tandem/base/error.h"
#include "tandem/base/file.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStepPrefix = "step-";
constexpr std::string_view kPendingPrefix = ".tmp-";

// A lock is let go when its process ends, however it ends; -1 when another process holds it.
int lock_directory(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return -1;
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(fd);
    return -1;
  }
  return fd;
}

bool is_step_name(const std::string& name) {
  return name.size() > kStepPrefix.size() && name.starts_with(kStepPrefix) &&
         std::all_of(name.begin() + kStepPrefix.size(), name.end(),
                     [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::string checkpoint_name(int64_t step) { return fmt::format("{}{:08}", kStepPrefix, step); }

std::vector<fs::path> list_checkpoints(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (is_step_name(entry->path().filename().string())) found.push_back(entry->path());
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    throw IoError("{}: cannot list: {}", folder.string(), error.message());
  }
  std::sort(found.begin(), found.end(), [](const fs::path& a, const fs::path& b) {
    const std::string x = a.filename().string(), y = b.filename().string();
    return x.size() != y.size() ? x.size() < y.size() : x < y;  // nine digits sort after eight
  });
  return found;
}

PendingDirectory::PendingDirectory(const fs::path& folder, const std::string& name)
    : folder_(folder), name_(name), path_(folder / fmt::format("{}{}-{}", kPendingPrefix, name, ::getpid())) {
  std::error_code error;
  fs::remove_all(path_, error);  // left by a dead process whose number we have inherited
  fs::create_directory(path_, error);
  if (error) throw IoError("{}: cannot create: {}", path_.string(), error.message());
  lock_ = lock_directory(path_);
}

PendingDirectory::~PendingDirectory() {
  std::error_code ignored;  // already failing, or committed and only an older checkpoint of this step is left
  fs::remove_all(path_, ignored);
  if (lock_ >= 0) ::close(lock_);
}

void PendingDirectory::commit() {
  sync_directory(path_);
  const fs::path target = folder_ / name_;
  // Exchanging keeps a whole checkpoint under this name at every moment; file systems that cannot exchange
  // (NFS) move the old one aside first.
  int result = ::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, target.c_str(), RENAME_NOREPLACE);
  if (result != 0 && errno == EEXIST) {
    result = ::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE);
  }
  if (result != 0 && errno == EINVAL) {
    if (fs::exists(target)) remove_checkpoint(target);
    result = ::rename(path_.c_str(), target.c_str());
  }
  if (result != 0) throw IoError("{}: cannot rename to {}: {}", path_.string(), name_, std::strerror(errno));
  sync_directory(folder_);
}

void point_latest(const fs::path& folder, const std::string& name) {
  const fs::path pending = folder / fmt::format("{}latest-{}", kPendingPrefix, ::getpid());
  std::error_code error;
  fs::remove(pending, error);
  fs::create_directory_symlink(name, pending, error);
  if (!error) fs::rename(pending, folder / "latest", error);
  if (error) throw IoError("{}: cannot point to {}: {}", (folder / "latest").string(), name, error.message());
}

void remove_checkpoint(const fs::path& checkpoint) {
  const fs::path doomed = checkpoint.parent_path() / fmt::format("{}old-{}-{}", kPendingPrefix,
                                                                 checkpoint.filename().string(), ::getpid());
  std::error_code error;
  fs::rename(checkpoint, doomed, error);
  if (!error) fs::remove_all(doomed, error);
  if (error) throw IoError("{}: cannot remove: {}", checkpoint.string(), error.message());
}

void remove_leftovers(const fs::path& folder) {
  std::vector<fs::path> leftovers;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kPendingPrefix)) leftovers.push_back(entry.path());
  }
  for (const fs::path& path : leftovers) {
    std::error_code error;
    if (fs::is_directory(fs::symlink_status(path))) {
      const int lock = lock_directory(path);
      if (lock < 0) continue;
      fs::remove_all(path, error);
      ::close(lock);
    } else {
      fs::remove(path, error);
    }
    if (error) throw IoError("{}: cannot remove what a killed save left: {}", path.string(), error.message());
  }
}

}  // namespace tandem
