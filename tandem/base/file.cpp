#include "tandem/base/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <system_error>
#include <utility>

#include "tandem/base/descriptor.h"
#include "tandem/base/error.h"
#include "tandem/base/quantity.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTemporary = ".tmp-";

const char* kind_of(mode_t mode) {
  switch (mode & S_IFMT) {
    case S_IFDIR: return "directory";
    case S_IFIFO: return "FIFO";
    case S_IFSOCK: return "socket";
    case S_IFCHR:
    case S_IFBLK: return "device";
    default: return "thing of another kind";
  }
}

void require_regular(mode_t mode, const fs::path& path) {
  if (!S_ISREG(mode))
    throw DataError("{}: expected a regular file, found a {}", path.string(), kind_of(mode));
}

int64_t file_size(int fd, const fs::path& path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) throw IoError("{}: cannot stat: {}", path.string(), std::strerror(errno));
  return static_cast<int64_t>(info.st_size);
}

// Of a file that says it has no bytes, as those of /proc do.
std::string read_to_end(int fd, const fs::path& path) {
  std::array<char, 4096> page;
  std::string text;
  for (;;) {
    const ssize_t n = ::read(fd, page.data(), page.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw IoError("{}: cannot read: {}", path.string(), std::strerror(errno));
    if (n == 0) return text;
    text.append(page.data(), static_cast<size_t>(n));
  }
}

// "config.yaml.tmp-77" is one of "config.yaml".
bool is_temporary_of(std::string_view name, std::string_view of) {
  if (!name.starts_with(of)) return false;
  name.remove_prefix(of.size());
  if (!name.starts_with(kTemporary)) return false;
  name.remove_prefix(kTemporary.size());
  return !name.empty() && name.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

bool is_there(const fs::path& path) noexcept {
  std::error_code error;
  return fs::exists(path, error);
}

void require_regular(const fs::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0) require_regular(info.st_mode, path);
}

int open_regular(const fs::path& path, int flags) {
  require_regular(path);  // to open a device can be to act on it
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0644);
  if (fd < 0) throw IoError("{}: cannot open: {}", path.string(), std::strerror(errno));
  struct stat info {};
  if (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) return fd;
  ::close(fd);
  throw DataError("{}: expected a regular file", path.string());  // it has become another a moment ago
}

int64_t regular_file_bytes(const fs::path& path) {
  const Descriptor file(open_regular(path, O_RDONLY));
  return file_size(file.get(), path);
}

std::string read_text(const fs::path& path, int64_t most) {
  const Descriptor file(open_regular(path, O_RDONLY));
  const int64_t bytes = file_size(file.get(), path);
  if (bytes > most)
    throw DataError("{}: expected at most {}, found {}", path.string(), format_bytes(most),
                    format_bytes(bytes));
  if (bytes == 0) return read_to_end(file.get(), path);
  std::string text(static_cast<size_t>(bytes), '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::read(file.get(), text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      throw IoError("{}: cannot read: {}", path.string(), n < 0 ? std::strerror(errno) : "file shrank");
    done += static_cast<size_t>(n);
  }
  return text;
}

void sync_directory(const fs::path& directory) {
  const int fd = ::open(directory.empty() ? "." : directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) throw IoError("{}: cannot open: {}", directory.string(), std::strerror(errno));
  const Descriptor handle(fd);
  if (::fsync(handle.get()) != 0)
    throw IoError("{}: cannot sync: {}", directory.string(), std::strerror(errno));
}

void make_directories(const fs::path& directory) {
  std::error_code error;
  if (directory.empty() || fs::is_directory(directory, error)) return;
  const fs::path parent =
      directory.has_filename() ? directory.parent_path() : directory.parent_path().parent_path();
  make_directories(parent);
  if (::mkdir(directory.c_str(), 0777) != 0 && (errno != EEXIST || !fs::is_directory(directory, error)))
    throw IoError("{}: cannot create: {}", directory.string(), std::strerror(errno));
  sync_directory(parent);
}

void write_atomically(const fs::path& path, std::string_view text) {
  const fs::path temporary = path.string() + fmt::format("{}{}", kTemporary, ::getpid());
  try {
    OutputFile file(temporary);
    ::flock(file.descriptor(), LOCK_EX | LOCK_NB);  // somebody is writing it: see remove_dead_temporaries
    file.write_all(std::as_bytes(std::span(text)));
    file.sync_and_close();
    fs::rename(temporary, path);
  } catch (const std::exception& error) {
    std::error_code ignored;
    fs::remove(temporary, ignored);
    throw IoError("{}: cannot write: {}", path.string(), error.what());
  }
  sync_directory(path.parent_path());
}

std::vector<fs::path> remove_dead_temporaries(const fs::path& directory,
                                              std::initializer_list<std::string_view> names) {
  std::vector<fs::path> dead, stay;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const auto is_its = [&](std::string_view of) { return is_temporary_of(name, of); };
    if (std::any_of(names.begin(), names.end(), is_its)) dead.push_back(entry->path());
  }
  for (const fs::path& path : dead) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    const bool in_use = fd >= 0 && ::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!in_use && !fs::remove(path, error) && error) stay.push_back(path);
    if (fd >= 0) ::close(fd);
  }
  return stay;
}

void survive_file_size_limit() {
  struct sigaction action {};
  if (::sigaction(SIGXFSZ, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) return;
  action = {};
  action.sa_handler = [](int) {};  // not SIG_IGN, which programs that are started would inherit
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGXFSZ, &action, nullptr);
}

OutputFile::OutputFile(const fs::path& path)
    : path_(path), fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {
  if (fd_ < 0) throw IoError("{}: cannot create: {}", path.string(), std::strerror(errno));
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
}

void OutputFile::write_all(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw IoError("{}: cannot write: {}", path_.string(), std::strerror(errno));
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

void OutputFile::sync_and_close() {
  if (::fsync(fd_) != 0) throw IoError("{}: cannot sync: {}", path_.string(), std::strerror(errno));
  const int fd = std::exchange(fd_, -1);
  if (::close(fd) != 0) throw IoError("{}: cannot close: {}", path_.string(), std::strerror(errno));
}

MappedFile::MappedFile(const fs::path& path) {
  const Descriptor file(open_regular(path, O_RDONLY));
  size_ = static_cast<size_t>(file_size(file.get(), path));
  if (size_ == 0) return;
  void* data = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) throw IoError("{}: cannot map: {}", path.string(), std::strerror(errno));
  data_ = static_cast<const std::byte*>(data);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

namespace {

// The whole pages that hold the bytes, or those that hold nothing else.
void advise(std::span<const std::byte> mapped, bool inner, int advice) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<uintptr_t>(mapped.data()), last = first + mapped.size();
  const uintptr_t begin = (inner ? first + page - 1 : first) / page * page;
  const uintptr_t end = (inner ? last : last + page - 1) / page * page;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, advice);
}

}  // namespace

void expect_pages(std::span<const std::byte> mapped) {
#ifdef MADV_POPULATE_READ
  advise(mapped, /*inner=*/false, MADV_POPULATE_READ);
#else
  advise(mapped, /*inner=*/false, MADV_WILLNEED);
#endif
}

void release_pages(std::span<const std::byte> mapped) { advise(mapped, /*inner=*/true, MADV_DONTNEED); }

}  // namespace tandem
