#include "tandem/store/file_system.h"

#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <system_error>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/system.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr long kXfs = 0x58465342, kZfs = 0x2fc12fc1, kLustre = 0x0bd00bd0;

bool is_known_to_rename(const fs::path& directory) {
  struct statfs info {};
  if (::statfs(directory.c_str(), &info) != 0)
    throw IoError("{}: cannot tell its file system: {}", directory.string(), std::strerror(errno));
  constexpr long kKnown[] = {EXT4_SUPER_MAGIC,
                             kXfs,
                             BTRFS_SUPER_MAGIC,
                             TMPFS_MAGIC,
                             OVERLAYFS_SUPER_MAGIC,
                             NFS_SUPER_MAGIC,
                             F2FS_SUPER_MAGIC,
                             kZfs,
                             kLustre};
  return std::find(std::begin(kKnown), std::end(kKnown), static_cast<long>(info.f_type)) != std::end(kKnown);
}

// Of a rename: the file system does not do it, and never will.
bool cannot(int problem) {
  return problem == EXDEV || problem == EPERM || problem == ENOSYS || problem == EOPNOTSUPP ||
         problem == EINVAL;
}

bool try_to_rename(const fs::path& directory) {
  const fs::path from = directory / fmt::format("{}try-{}-{}", kHiddenPrefix, hostname(), ::getpid());
  const fs::path to = from.string() + "-renamed";
  std::error_code ignored;
  fs::remove(to, ignored);
  if (::mkdir(from.c_str(), 0700) != 0 && errno != EEXIST)
    throw IoError("{}: cannot create: {}", from.string(), std::strerror(errno));
  const bool renamed = ::rename(from.c_str(), to.c_str()) == 0;
  const int problem = errno;
  fs::remove(renamed ? to : from, ignored);
  if (!renamed && !cannot(problem))
    throw IoError("{}: cannot rename: {}", from.string(), std::strerror(problem));
  return renamed;
}

// The entry called `last` last.
void move_file_by_file(const fs::path& from, const fs::path& to, const std::string& last) {
  make_directories(to);
  std::vector<fs::path> entries;
  for (const fs::directory_entry& entry : fs::directory_iterator(from)) entries.push_back(entry.path());
  std::stable_partition(entries.begin(), entries.end(),
                        [&](const fs::path& entry) { return entry.filename() != last; });
  for (const fs::path& entry : entries) {
    if (entry.filename() == last) sync_directory(to);
    if (fs::is_directory(fs::symlink_status(entry))) {
      move_file_by_file(entry, to / entry.filename(), last);
    } else {
      fs::rename(entry, to / entry.filename());
    }
  }
  sync_directory(to);
  fs::remove(from);
}

}  // namespace

bool renames_directories(const fs::path& directory) {
  static std::mutex mutex;
  static std::map<dev_t, bool> answers;
  struct stat info {};
  if (::stat(directory.c_str(), &info) != 0)
    throw IoError("{}: cannot stat: {}", directory.string(), std::strerror(errno));
  const std::scoped_lock lock(mutex);
  const auto known = answers.find(info.st_dev);
  if (known != answers.end()) return known->second;
  return answers[info.st_dev] = is_known_to_rename(directory) || try_to_rename(directory);
}

void move_directory(const fs::path& from, const fs::path& to, const std::string& last) {
  sync_directory(from);
  if (::rename(from.c_str(), to.c_str()) != 0) {
    if (!cannot(errno)) throw IoError("{}: cannot be put there: {}", to.string(), std::strerror(errno));
    try {
      move_file_by_file(from, to, last);
    } catch (const fs::filesystem_error& error) {
      throw IoError("{}: cannot be put there: {}", to.string(), error.code().message());
    }
  }
  sync_directory(to.has_parent_path() ? to.parent_path() : ".");
}

}  // namespace tandem
