#include "tandem/checkpoint/layout.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "tandem/base/error.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStepPrefix = "step-";
constexpr std::string_view kAsidePrefix = ".tmp-aside-";

std::vector<fs::path> pending_in(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().filename().string().starts_with(kPendingPrefix)) found.push_back(entry->path());
  }
  if (error && error != std::errc::no_such_file_or_directory)
    throw IoError("{}: cannot list: {}", folder.string(), error.message());
  return found;
}

}  // namespace

std::string checkpoint_name(int64_t step) { return fmt::format("{}{:08}", kStepPrefix, step); }

bool is_checkpoint_name(std::string_view name) {
  return name.size() > kStepPrefix.size() && name.starts_with(kStepPrefix) &&
         std::all_of(name.begin() + kStepPrefix.size(), name.end(),
                     [](char c) { return c >= '0' && c <= '9'; });
}

std::vector<fs::path> list_checkpoints(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (is_checkpoint_name(entry->path().filename().string())) found.push_back(entry->path());
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

void point_latest(const fs::path& folder, const std::string& name) {
  const fs::path pending = folder / fmt::format("{}latest-{}", kPendingPrefix, ::getpid());
  std::error_code error;
  fs::remove(pending, error);
  fs::create_directory_symlink(name, pending, error);
  if (!error) fs::rename(pending, folder / "latest", error);
  if (!error) return;
  std::error_code ignored;
  fs::remove(pending, ignored);
  throw IoError("{}: cannot point to {}: {}", (folder / "latest").string(), name, error.message());
}

void remove_checkpoint(const fs::path& checkpoint) {
  const fs::path doomed = checkpoint.parent_path() / fmt::format("{}old-{}-{}", kPendingPrefix,
                                                                 checkpoint.filename().string(), ::getpid());
  std::error_code error;
  fs::rename(checkpoint, doomed, error);
  if (error == std::errc::no_such_file_or_directory)
    return;  // gone; what is left of it goes at the next start
  if (!error) fs::remove_all(doomed, error);
  if (error) throw IoError("{}: cannot remove: {}", checkpoint.string(), error.message());
}

fs::path aside_path(const fs::path& checkpoint) {
  return checkpoint.parent_path() /
         fmt::format("{}{}-{}", kAsidePrefix, checkpoint.filename().string(), ::getpid());
}

void put_back_replaced(const fs::path& folder) {
  for (const fs::path& path : pending_in(folder)) {
    std::string name = path.filename().string();
    if (!name.starts_with(kAsidePrefix)) continue;
    name = name.substr(kAsidePrefix.size(), name.rfind('-') - kAsidePrefix.size());
    std::error_code error;
    if (is_checkpoint_name(name) && !fs::exists(folder / name, error)) fs::rename(path, folder / name, error);
    if (error) throw IoError("{}: cannot rename to {}: {}", path.string(), name, error.message());
  }
}

std::vector<std::string> remove_leftovers(const fs::path& folder) {
  std::vector<std::string> troubles;
  for (const fs::path& path : pending_in(folder)) {
    std::error_code error;
    if (fs::is_directory(fs::symlink_status(path, error))) {
      const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
      const bool in_use = fd >= 0 && ::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
      if (!in_use) fs::remove_all(path, error);
      if (fd >= 0) ::close(fd);
    } else {
      fs::remove(path, error);
    }
    if (error) {
      troubles.push_back(fmt::format("{}: cannot remove what a killed save left: {}; remove it by hand",
                                     path.string(), error.message()));
    }
  }
  return troubles;
}

}  // namespace tandem
