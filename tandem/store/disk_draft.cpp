#include "tandem/store/disk_draft.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <system_error>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/store/disk_store.h"
#include "tandem/store/paced_file.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kAsidePrefix = ".tmp-aside-";
constexpr auto kPatience = std::chrono::seconds(10);  // for another process that is removing the directory

// Of a draft: hidden already, so it grows under its own name.
class DraftWriter final : public ObjectWriter {
 public:
  explicit DraftWriter(const fs::path& path) : file_(path) {}
  void write_all(std::span<const std::byte> bytes) override { file_.write_all(bytes); }
  void finish() override { file_.sync_and_close(); }

 private:
  PacedFile file_;
};

void write_file(const fs::path& path, std::string_view text) {
  OutputFile file(path);
  file.write_all(std::as_bytes(std::span(text)));
  file.sync_and_close();
}

}  // namespace

fs::path draft_path(const fs::path& directory, const std::string& bundle, const std::string& token) {
  return directory / fmt::format("{}{}-{}", kHiddenPrefix, bundle, token);
}

fs::path aside_path(const fs::path& bundle) {
  return bundle.parent_path() / fmt::format("{}{}-{}", kAsidePrefix, bundle.filename().string(), ::getpid());
}

std::optional<std::string> bundle_set_aside(const fs::path& path) {
  const std::string name = path.filename().string();
  if (!name.starts_with(kAsidePrefix)) return std::nullopt;
  return name.substr(kAsidePrefix.size(), name.rfind('-') - kAsidePrefix.size());
}

DiskDraft::DiskDraft(const fs::path& directory, const std::string& bundle, const std::string& token)
    : directory_(directory),
      bundle_(bundle),
      path_(draft_path(directory, bundle, token)),
      target_(directory / bundle),
      replaced_(path_) {
  // Another process may be removing the directory of that name: then this begins again.
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  for (std::chrono::milliseconds pause{1}; std::chrono::steady_clock::now() < deadline;
       pause = std::min(2 * pause, std::chrono::milliseconds(50))) {
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
    std::this_thread::sleep_for(pause);
  }
  throw IoError("{}: cannot lock: another process holds it", path_.string());
}

DiskDraft::~DiskDraft() { ::close(lock_); }

bool DiskDraft::is_at(const fs::path& path) const {
  struct stat mine {
  }, there{};
  return ::fstat(lock_, &mine) == 0 && ::stat(path.c_str(), &there) == 0 && mine.st_ino == there.st_ino &&
         mine.st_dev == there.st_dev;
}

std::unique_ptr<ObjectWriter> DiskDraft::create(const std::string& name) {
  return std::make_unique<DraftWriter>(path_ / name);
}

std::unique_ptr<ObjectReader> DiskDraft::open(const std::string& name) const {
  return open_file(path_ / name);
}

void DiskDraft::put(const std::string& name, std::string_view text) {
  const fs::path temporary = path_ / (name + ".new");
  write_file(temporary, text);
  if (::fsync(lock_) != 0) throw IoError("{}: cannot sync: {}", path_.string(), std::strerror(errno));
  std::error_code error;
  fs::rename(temporary, path_ / name, error);
  // Where it is not there any more, it was renamed and only the answer was lost.
  if (error && (error == std::errc::no_such_file_or_directory || is_there(temporary)))
    throw IoError("{}: cannot rename: {}", temporary.string(), error.message());
}

void DiskDraft::remove(const std::string& name) {
  std::error_code error;
  if (!fs::remove(path_ / name, error) && error)
    throw IoError("{}: cannot remove: {}", (path_ / name).string(), error.message());
}

void DiskDraft::remove_all() noexcept {
  std::error_code ignored;  // then the next start clears it
  fs::remove_all(path_, ignored);
}

std::vector<StoredObject> DiskDraft::list() const {
  std::vector<StoredObject> objects;
  std::error_code error;
  for (fs::directory_iterator entry(path_, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code gone;
    const auto bytes = entry->file_size(gone);
    objects.push_back({entry->path().filename().string(), gone ? 0 : static_cast<int64_t>(bytes)});
  }
  return objects;
}

void DiskDraft::commit(std::string_view index, std::span<const std::string> notes) {
  write_file(path_ / kIndexName, index);
  for (const std::string& note : notes) remove(note);
  sync_directory(path_);
  rename_to_target();
  sync_directory(directory_);
}

// Exchanging keeps a whole bundle under this name at every moment; file systems that cannot exchange (NFS)
// move the old one aside first.
void DiskDraft::rename_to_target() {
  int result = ::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, target_.c_str(), RENAME_NOREPLACE);
  if (result != 0 && errno == EEXIST) {
    result = ::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE);
  }
  if (result != 0 && errno == EINVAL) {
    replaced_ = aside_path(target_);
    if (::rename(target_.c_str(), replaced_.c_str()) != 0 && errno != ENOENT)
      throw IoError("{}: cannot rename: {}", target_.string(), std::strerror(errno));
    result = ::rename(path_.c_str(), target_.c_str());
  }
  if (result == 0) return;
  const int error = errno;
  if (is_at(target_)) return;  // it was done, though the answer was lost
  if (replaced_ != path_) ::rename(replaced_.c_str(), target_.c_str());
  throw IoError("{}: cannot rename to {}: {}", path_.string(), bundle_, std::strerror(error));
}

void DiskDraft::drop_replaced() noexcept {
  std::error_code ignored;  // then the next start clears it
  fs::remove_all(replaced_, ignored);
}

Draft::State DiskDraft::state() const {
  const bool open = !is_at(target_) && is_at(path_);
  if (open) return State::Open;
  if (!is_at(target_)) return State::Gone;
  sync_directory(directory_);
  return State::Committed;
}

}  // namespace tandem
