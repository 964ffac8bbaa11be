#include "tandem/store/disk_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "tandem/base/descriptor.h"
#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/system.h"
#include "tandem/store/disk_draft.h"
#include "tandem/store/file_system.h"
#include "tandem/store/paced_file.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

class FileReader final : public ObjectReader {
 public:
  explicit FileReader(fs::path path) : path_(std::move(path)), file_(open_regular(path_, O_RDONLY)) {}

  int64_t size() const override {
    struct stat info {};
    if (::fstat(file_.get(), &info) != 0)
      throw IoError("{}: cannot stat: {}", path_.string(), std::strerror(errno));
    return static_cast<int64_t>(info.st_size);
  }
  void read_at(int64_t offset, std::span<std::byte> dst) const override {
    while (!dst.empty()) {
      const ssize_t n = ::pread(file_.get(), dst.data(), dst.size(), offset);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw IoError("{}: cannot read: {}", path_.string(), std::strerror(errno));
      if (n == 0) throw DataError("{}: truncated: ends at byte {}", path_.string(), offset);
      dst = dst.subspan(static_cast<size_t>(n));
      offset += n;
    }
  }
  std::string description() const override { return path_.string(); }

 private:
  fs::path path_;
  Descriptor file_;
};

// Written under a hidden name beside its own, to which finish() renames it.
class FileWriter final : public ObjectWriter {
 public:
  explicit FileWriter(const fs::path& path)
      : path_(path),
        hidden_(path.parent_path() /
                fmt::format("{}{}-{}", kHiddenPrefix, path.filename().string(), ::getpid())),
        file_(hidden_) {
    ::flock(file_.descriptor(), LOCK_EX | LOCK_NB);  // somebody is writing it: see remove_leftovers
  }
  ~FileWriter() override {
    std::error_code ignored;
    if (!finished_) fs::remove(hidden_, ignored);
  }
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write_all(std::span<const std::byte> bytes) override { file_.write_all(bytes); }
  void finish() override {
    file_.sync_and_close();
    std::error_code error;
    fs::rename(hidden_, path_, error);
    if (error) throw IoError("{}: cannot rename: {}", hidden_.string(), error.message());
    finished_ = true;
    sync_directory(path_.parent_path());
  }

 private:
  fs::path path_;
  fs::path hidden_;
  PacedFile file_;
  bool finished_ = false;
};

class FileBytes final : public ObjectBytes {
 public:
  explicit FileBytes(const fs::path& path) : file_(path) {}
  std::span<const std::byte> bytes() const override { return file_.bytes(); }

 private:
  MappedFile file_;
};

// In a directory that becomes a bundle by a put of its index: until then it is no damaged one.
constexpr std::string_view kDraftMark = ".tmp-draft";

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with(kHiddenPrefix); }

std::vector<fs::path> entries_of(const fs::path& directory) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error))
    found.push_back(entry->path());
  if (error && error != std::errc::no_such_file_or_directory)
    throw IoError("{}: cannot list: {}", directory.string(), error.message());
  return found;
}

int64_t modified(const fs::path& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 ? static_cast<int64_t>(info.st_mtime) : 0;
}

int64_t bytes_below(const fs::path& path) {
  std::error_code error;
  if (fs::is_symlink(path, error)) return 0;
  if (!fs::is_directory(path, error)) return static_cast<int64_t>(fs::file_size(path, error));
  int64_t bytes = 0;
  for (const fs::path& entry : entries_of(path)) bytes += bytes_below(entry);
  return bytes;
}

// Whether its writer was killed before it put the index, or even the mark, which a new directory lacks for a
// moment.
bool is_draft(const fs::path& bundle) {
  std::error_code error;
  if (is_there(bundle / kIndexName)) return false;
  return is_there(bundle / kDraftMark) || (fs::is_directory(bundle, error) && fs::is_empty(bundle, error));
}

// A bundle, or what was to become one: it disappears with its index, and its mark goes last.
void remove_in_place(const fs::path& bundle) {
  std::error_code error;
  if (fs::is_directory(bundle, error)) {
    if (!is_there(bundle / kDraftMark)) OutputFile(bundle / kDraftMark).sync_and_close();
    fs::remove(bundle / kIndexName, error);
    sync_directory(bundle);
    for (const fs::path& entry : entries_of(bundle)) {
      if (entry.filename() != kDraftMark) fs::remove_all(entry, error);
    }
  }
  fs::remove_all(bundle, error);
  if (error) throw IoError("{}: cannot remove: {}", bundle.string(), error.message());
}

}  // namespace

std::unique_ptr<ObjectReader> open_file(const fs::path& path) { return std::make_unique<FileReader>(path); }

std::unique_ptr<ObjectReader> DiskStore::open(const std::string& name) const {
  return open_file(path_of(name));
}

bool DiskStore::exists(const std::string& name) const { return is_there(path_of(name)); }

std::unique_ptr<ObjectWriter> DiskStore::create(const std::string& name) {
  const fs::path path = path_of(name);
  make_directories(path.parent_path());
  return std::make_unique<FileWriter>(path);
}

std::vector<StoredObject> DiskStore::list(const std::string& prefix) const {
  std::vector<StoredObject> found;
  const auto add_all = [&](const auto& self, const std::string& folder) -> void {
    for (const fs::path& path : entries_of(path_of(folder))) {
      if (is_hidden(path)) continue;
      const std::string name = folder + path.filename().string();
      std::error_code error;
      const fs::file_status status = fs::symlink_status(path, error);
      if (fs::is_directory(status)) {
        self(self, name + "/");
      } else if (fs::is_regular_file(status) && name.starts_with(prefix)) {
        found.push_back({name, static_cast<int64_t>(fs::file_size(path, error)), modified(path)});
      }
    }
  };
  add_all(add_all, prefix.substr(0, prefix.rfind('/') + 1));
  std::sort(found.begin(), found.end(),
            [](const StoredObject& a, const StoredObject& b) { return a.name < b.name; });
  return found;
}

void DiskStore::remove(const std::string& name) {
  std::error_code error;
  fs::remove(path_of(name), error);
  if (error) throw IoError("{}: cannot remove: {}", description(name), error.message());
}

int64_t DiskStore::free_bytes() const { return free_disk_bytes(directory_); }

// A link takes a name only where it is free.
bool DiskStore::put_new(const std::string& name, std::string_view text) {
  const fs::path path = path_of(name);
  make_directories(path.parent_path());
  const fs::path hidden =
      path.parent_path() / fmt::format("{}{}-{}-{:x}", kHiddenPrefix, path.filename().string(), ::getpid(),
                                       reinterpret_cast<uintptr_t>(&text));
  OutputFile file(hidden);
  file.write_all(std::as_bytes(std::span(text)));
  file.sync_and_close();
  const bool linked = ::link(hidden.c_str(), path.c_str()) == 0;
  const int problem = errno;
  std::error_code ignored;
  fs::remove(hidden, ignored);
  if (!linked && problem == EEXIST) return false;
  if (!linked) throw IoError("{}: cannot put: {}", description(name), std::strerror(problem));
  sync_directory(path.parent_path());
  return true;
}

std::vector<StoredObject> DiskStore::unfinished() const {
  std::vector<StoredObject> found;
  for (const fs::path& path : entries_of(directory_)) {
    if (is_hidden(path)) found.push_back({path.filename().string(), bytes_below(path), modified(path)});
  }
  return found;
}

void DiskStore::remove_unfinished(const StoredObject& object) {
  std::error_code error;
  fs::remove_all(path_of(object.name), error);
  if (error) throw IoError("{}: cannot remove: {}", description(object.name), error.message());
}

void DiskStore::make() { make_directories(directory_); }

void DiskStore::put(const std::string& name, std::string_view text) {
  const fs::path path = path_of(name);
  make_directories(path.parent_path());
  write_atomically(path, text);
}

std::unique_ptr<ObjectBytes> DiskStore::map(const std::string& name) const {
  return std::make_unique<FileBytes>(path_of(name));
}

std::vector<std::string> DiskStore::bundles() const {
  std::vector<std::string> names;
  for (const fs::path& path : entries_of(directory_)) {
    if (!is_hidden(path) && !is_draft(path)) names.push_back(path.filename().string());
  }
  return names;
}

// Of a directory that is not there yet nothing is known, and there is nothing in it.
bool DiskStore::renames_bundles() const { return !is_there(directory_) || renames_directories(directory_); }

std::unique_ptr<Draft> DiskStore::draft(const std::string& bundle, const std::string& token) {
  if (renames_bundles()) return std::make_unique<DiskDraft>(directory_, bundle, token);
  make_directories(path_of(bundle));
  if (!is_there(path_of(bundle) / kIndexName)) OutputFile(path_of(bundle) / kDraftMark).sync_and_close();
  return Store::draft(bundle, token);
}

void DiskStore::remove_draft(const std::string& bundle, const std::string& token) {
  if (!renames_bundles()) return Store::remove_draft(bundle, token);
  fs::remove_all(draft_path(directory_, bundle, token));
}

void DiskStore::remove_bundle(const std::string& bundle) {
  if (!renames_bundles()) return remove_in_place(path_of(bundle));
  const fs::path doomed = directory_ / fmt::format("{}old-{}-{}", kHiddenPrefix, bundle, ::getpid());
  std::error_code error;
  fs::rename(path_of(bundle), doomed, error);
  if (error == std::errc::no_such_file_or_directory)
    return;  // gone; what is left of it goes at the next start
  if (!error) fs::remove_all(doomed, error);
  if (error) throw IoError("{}: cannot remove: {}", description(bundle), error.message());
}

void DiskStore::set_alias(const std::string& alias, const std::string& name) {
  const fs::path hidden = directory_ / fmt::format("{}{}-{}", kHiddenPrefix, alias, ::getpid());
  std::error_code error;
  fs::remove(hidden, error);
  fs::create_directory_symlink(name, hidden, error);
  if (!error) fs::rename(hidden, path_of(alias), error);
  if (!error) return;
  std::error_code ignored;
  fs::remove(hidden, ignored);
  throw IoError("{}: cannot point to {}: {}", description(alias), name, error.message());
}

std::optional<std::string> DiskStore::alias(const std::string& name) const {
  std::error_code error;
  const fs::path target = fs::read_symlink(path_of(name), error);
  if (error) return std::nullopt;
  return target.string();
}

void DiskStore::put_back_replaced() {
  for (const fs::path& path : entries_of(directory_)) {
    const std::optional<std::string> name = bundle_set_aside(path);
    if (!name) continue;
    std::error_code error;
    if (!fs::exists(path_of(*name), error)) fs::rename(path, path_of(*name), error);
    if (error) throw IoError("{}: cannot rename to {}: {}", path.string(), *name, error.message());
  }
}

std::vector<std::string> DiskStore::remove_leftovers(const BundleNames& ours) {
  std::vector<std::string> troubles;
  if (!renames_bundles()) {
    troubles = Store::remove_leftovers(ours);
    for (const fs::path& path : entries_of(directory_)) {
      if (!is_hidden(path) && ours(path.filename().string()) && is_draft(path)) remove_in_place(path);
    }
  }
  for (const fs::path& path : entries_of(directory_)) {
    if (!is_hidden(path)) continue;
    std::error_code error;
    const int fd = fs::is_symlink(path, error) ? -1 : ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    const bool in_use = fd >= 0 && ::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    error.clear();
    if (!in_use) fs::remove_all(path, error);
    if (fd >= 0) ::close(fd);
    if (error) {
      troubles.push_back(fmt::format("{}: cannot remove what a killed save left: {}; remove it by hand",
                                     path.string(), error.message()));
    }
  }
  return troubles;
}

}  // namespace tandem
