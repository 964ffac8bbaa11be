#include "tandem/launch/log_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "tandem/base/error.h"

namespace tandem {
namespace {

constexpr const char* kLock = ".launcher";  // held by the launcher while it lives
constexpr const char* kKept = ".kept";      // made when it is kept on purpose
constexpr std::string_view kName = "tandem-launch-";

// Made by a launcher of this user, and closed to all others, so that nobody can put anything else in its
// place.
bool is_own_directory(const std::filesystem::path& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid() &&
         (status.st_mode & 077) == 0;
}

bool is_kept(const std::filesystem::path& path) {
  std::error_code error;
  const auto since = std::filesystem::last_write_time(path / kKept, error);
  return !error && std::filesystem::file_time_type::clock::now() - since < LogDirectory::kKeptFor;
}

void remove_if_left_behind(const std::filesystem::path& path) {
  if (!is_own_directory(path)) return;
  const int lock = ::open((path / kLock).c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC);
  if (lock < 0) return;  // something else of that name
  std::error_code ignored;
  if (::flock(lock, LOCK_EX | LOCK_NB) == 0 && !is_kept(path)) std::filesystem::remove_all(path, ignored);
  ::close(lock);
}

void remove_left_behind(const std::filesystem::path& parent) {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(parent, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().filename().string().starts_with(kName)) remove_if_left_behind(entry->path());
  }
}

}  // namespace

// It gets the name by which others find it when it is locked.
void LogDirectory::make_temporary(const std::filesystem::path& parent) {
  std::string hidden = (parent / fmt::format(".{}XXXXXX", kName)).string();
  if (::mkdtemp(hidden.data()) == nullptr)
    throw IoError("{}: cannot make a directory for logs: {}; give one with --log-dir", hidden,
                  std::strerror(errno));
  path_ = hidden;
  lock_ = ::open((path_ / kLock).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (lock_ < 0 || ::flock(lock_, LOCK_EX | LOCK_NB) != 0)
    return;  // a file system without locks: nobody removes it
  const std::filesystem::path name = parent / path_.filename().string().substr(1);
  if (::rename(path_.c_str(), name.c_str()) == 0) path_ = name;  // not where another has the name
}

LogDirectory::LogDirectory(const std::string& wanted) : path_(wanted), temporary_(wanted.empty()) {
  std::error_code error;
  if (temporary_) {
    const std::filesystem::path found = std::filesystem::temp_directory_path(error);
    const std::filesystem::path parent = error ? "/tmp" : found;
    remove_left_behind(parent);
    make_temporary(parent);
    return;
  }
  std::filesystem::create_directories(path_, error);
  if (error) throw IoError("--log-dir {}: cannot be made: {}", wanted, error.message());
}

LogDirectory::~LogDirectory() {
  std::error_code ignored;  // what cannot be removed stays behind in the temporary directory
  if (temporary_) std::filesystem::remove_all(path_, ignored);
  if (lock_ >= 0) ::close(lock_);
}

void LogDirectory::keep() {
  if (!temporary_) return;
  temporary_ = false;
  const int fd = ::open((path_ / kKept).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (fd >= 0) ::close(fd);
}

std::filesystem::path LogDirectory::log_of(int rank) const {
  return path_ / fmt::format("rank-{}.log", rank);
}

}  // namespace tandem
