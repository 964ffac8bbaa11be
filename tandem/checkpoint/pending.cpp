#include "tandem/checkpoint/pending.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/quantity.h"
#include "tandem/checkpoint/layout.h"
#include "tandem/checkpoint/part.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::string_view kFailed = "failed-", kLeft = "left-";
constexpr std::string_view kPart = "part-", kPartEnd = ".json";

// The 3 of "part-00003.json".
std::optional<int> rank_in(std::string_view name, std::string_view prefix, std::string_view suffix = {}) {
  if (!name.starts_with(prefix) || !name.ends_with(suffix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  name.remove_suffix(std::min(suffix.size(), name.size()));
  int rank = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), rank);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return rank;
}

std::string note_name(std::string_view prefix, int rank) { return fmt::format("{}{:05}", prefix, rank); }

std::string list_ranks(const std::vector<int>& ranks) {
  constexpr size_t kShown = 8;
  const auto shown = std::span(ranks).first(std::min(kShown, ranks.size()));
  return fmt::format("rank{} {}{}", ranks.size() == 1 ? "" : "s", fmt::join(shown, ", "),
                     ranks.size() > kShown ? fmt::format(" and {} more", ranks.size() - kShown) : "");
}

// Looks often at first and seldom later; `expired` when nothing has changed for too long.
class Patience {
 public:
  bool expired(int64_t progress, milliseconds limit) {
    if (std::exchange(progress_, progress) == progress) return Clock::now() - since_ > limit;
    since_ = Clock::now();
    return false;
  }
  void sleep() {
    std::this_thread::sleep_for(interval_);
    interval_ = std::min(interval_ * 2, milliseconds(50));
  }

 private:
  int64_t progress_ = -1;
  Clock::time_point since_ = Clock::now();
  milliseconds interval_{1};
};

std::string seconds(milliseconds duration) {
  return format_duration(std::chrono::duration<double>(duration).count());
}

}  // namespace

PendingDirectory::PendingDirectory(const fs::path& folder, const std::string& name, const SaveGroup& group)
    : folder_(folder),
      name_(name),
      path_(folder / fmt::format("{}{}-{}", kPendingPrefix, name, group.token)),
      replaced_(path_),
      group_(group) {
  // Another rank may be removing the directory of that name: then this begins again.
  Patience patience;
  while (!patience.expired(0, std::chrono::seconds(10))) {
    if (::mkdir(path_.c_str(), 0755) != 0 && errno != EEXIST)
      throw IoError("{}: cannot create: {}", path_.string(), std::strerror(errno));
    lock_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lock_ < 0 && errno != ENOENT)
      throw IoError("{}: cannot open: {}", path_.string(), std::strerror(errno));
    if (lock_ >= 0) {
      // Where the file system has no locks there is nothing to wait for.
      const bool locked = ::flock(lock_, LOCK_SH | LOCK_NB) == 0 || errno != EWOULDBLOCK;
      if (locked && is_at(path_)) return;
      ::close(lock_);
    }
    patience.sleep();
  }
  throw IoError("{}: cannot lock: another process holds it", path_.string());
}

PendingDirectory::~PendingDirectory() {
  std::error_code ignored;  // already failing
  if (group_.world_size == 1) {
    if (!committed_) fs::remove_all(path_, ignored);
  } else if (!committed_ && is_at(path_)) {
    try {
      if (!look().failed.empty()) {
        OutputFile(path_ / note_name(kLeft, group_.rank)).sync_and_close();
        if (static_cast<int>(look().left.size()) == group_.world_size) fs::remove_all(path_, ignored);
      }
    } catch (const std::exception&) {  // gone meanwhile; or else the next start clears it
    }
  }
  ::close(lock_);
}

bool PendingDirectory::is_at(const fs::path& path) const {
  struct stat mine {
  }, there{};
  return ::fstat(lock_, &mine) == 0 && ::stat(path.c_str(), &there) == 0 && mine.st_ino == there.st_ino &&
         mine.st_dev == there.st_dev;
}

PendingDirectory::Contents PendingDirectory::look() const {
  Contents contents;
  std::error_code error;
  for (fs::directory_iterator entry(path_, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (const auto failed = rank_in(name, kFailed)) contents.failed.push_back(*failed);
    if (const auto left = rank_in(name, kLeft)) contents.left.push_back(*left);
    if (const auto part = rank_in(name, kPart, kPartEnd)) contents.parts.push_back(*part);
    std::error_code gone;
    const auto bytes = entry->file_size(gone);
    contents.progress += 1 + (gone ? 0 : static_cast<int64_t>(bytes));
  }
  std::sort(contents.failed.begin(), contents.failed.end());
  return contents;
}

void PendingDirectory::throw_if_failed(const Contents& contents) const {
  if (contents.failed.empty()) return;
  const int rank = contents.failed.front();
  std::string reason;
  try {
    reason = read_text(path_ / note_name(kFailed, rank));
  } catch (const Error&) {  // the last one to leave has removed it
  }
  if (reason.empty()) reason = "could not save its part; its log says why";
  if (rank == group_.rank) throw IoError("rank {}: {}", rank, reason);
  throw CommError("rank {}: {}", rank, reason);
}

void PendingDirectory::throw_if_failed() const { throw_if_failed(look()); }

std::vector<fs::path> PendingDirectory::await_parts(const std::function<milliseconds()>& patience) const {
  Patience waited;
  for (;;) {
    const Contents contents = look();
    throw_if_failed(contents);
    std::vector<int> missing;
    for (int rank = 1; rank < group_.world_size; ++rank) {
      if (std::find(contents.parts.begin(), contents.parts.end(), rank) == contents.parts.end())
        missing.push_back(rank);
    }
    if (missing.empty()) break;
    group_.check_peers();
    const milliseconds limit = patience();
    if (waited.expired(contents.progress, limit)) {
      throw IoError("{}: no part of the checkpoint came, and nothing was written for {}", list_ranks(missing),
                    seconds(limit));
    }
    waited.sleep();
  }
  std::vector<fs::path> paths;
  for (int rank = 1; rank < group_.world_size; ++rank) paths.push_back(path_ / part_file_name(rank));
  return paths;
}

void PendingDirectory::await_commit() const {
  const milliseconds limit = group_.timeout * 2;  // rank 0 is the first to give up, and says why
  Patience waited;
  for (;;) {
    if (is_at(target())) break;
    const Contents contents = look();
    throw_if_failed(contents);
    if (!is_at(path_)) {
      if (is_at(target())) break;  // renamed between the two looks
      throw CommError("rank 0: gave up the checkpoint; its log says why");
    }
    group_.check_peers();
    if (waited.expired(contents.progress, limit))
      throw IoError("rank 0: has not committed the checkpoint, and nothing was written for {}",
                    seconds(limit));
    waited.sleep();
  }
  sync_directory(folder_);
}

void PendingDirectory::commit() {
  for (int rank = 1; rank < group_.world_size; ++rank) {
    const fs::path part = path_ / part_file_name(rank);
    if (std::error_code error; !fs::remove(part, error) && error)
      throw IoError("{}: cannot remove: {}", part.string(), error.message());
  }
  sync_directory(path_);
  const fs::path target = this->target();
  // Exchanging keeps a whole checkpoint under this name at every moment; file systems that cannot exchange
  // (NFS) move the old one aside first.
  int result = ::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, target.c_str(), RENAME_NOREPLACE);
  if (result != 0 && errno == EEXIST) {
    result = ::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE);
  }
  if (result != 0 && errno == EINVAL) {
    replaced_ = aside_path(target);
    if (::rename(target.c_str(), replaced_.c_str()) != 0 && errno != ENOENT)
      throw IoError("{}: cannot rename: {}", target.string(), std::strerror(errno));
    result = ::rename(path_.c_str(), target.c_str());
  }
  if (result != 0) {
    const int error = errno;
    if (!is_at(target)) {  // else it was done, though the answer was lost
      if (replaced_ != path_) ::rename(replaced_.c_str(), target.c_str());
      throw IoError("{}: cannot rename to {}: {}", path_.string(), name_, std::strerror(error));
    }
  }
  committed_ = true;
  sync_directory(folder_);
}

void PendingDirectory::drop_replaced() noexcept {
  std::error_code ignored;  // then the next start clears it
  if (committed_) fs::remove_all(replaced_, ignored);
}

void PendingDirectory::add_part(std::string_view text) {
  const std::string name = part_file_name(group_.rank);
  const fs::path temporary = path_ / (name + ".new");
  OutputFile file(temporary);
  file.write_all(std::as_bytes(std::span(text)));
  file.sync_and_close();
  if (::fsync(lock_) != 0) throw IoError("{}: cannot sync: {}", path_.string(), std::strerror(errno));
  std::error_code error;
  fs::rename(temporary, path_ / name, error);
  if (error) {
    throw_if_failed();  // then rank 0 has cleared away what the others wrote
    // Where it is not there any more, it was renamed and only the answer was lost.
    if (error == std::errc::no_such_file_or_directory || is_there(temporary))
      throw IoError("{}: cannot rename: {}", temporary.string(), error.message());
  }
  part_in_place_ = true;
}

void PendingDirectory::fail(const std::string& reason) noexcept {
  if (group_.world_size == 1 || committed_ || part_in_place_) return;
  std::error_code ignored;
  try {
    fs::remove(path_ / data_file_name(group_.rank), ignored);  // first: it may be what fills the disk
    fs::remove(path_ / part_file_name(group_.rank), ignored);
    if (look().failed.empty()) {
      const fs::path note = path_ / note_name(kFailed, group_.rank);
      try {
        write_atomically(note, reason);
      } catch (const Error&) {
        OutputFile(note).sync_and_close();  // no room for the reason; that there is one must be known
      }
    }
    if (group_.rank != 0) return;
    // Those who are still writing see the note when they are done; what the others wrote goes now.
    std::vector<fs::path> doomed;
    for (const fs::directory_entry& entry : fs::directory_iterator(path_)) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with(kFailed) && !name.starts_with(kLeft)) doomed.push_back(entry.path());
    }
    for (const fs::path& path : doomed) fs::remove(path, ignored);
  } catch (const std::exception&) {  // the directory itself is lost: the others' time runs out
  }
}

}  // namespace tandem
