#include "tandem/base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "tandem/base/error.h"

namespace tandem {
namespace {

class Descriptor {
 public:
  Descriptor(const std::filesystem::path& path, int flags)
      : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {
    if (fd_ < 0) throw IoError("{}: cannot open: {}", path.string(), std::strerror(errno));
  }
  ~Descriptor() { ::close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

size_t file_size(int fd, const std::filesystem::path& path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) throw IoError("{}: cannot stat: {}", path.string(), std::strerror(errno));
  if (!S_ISREG(info.st_mode)) throw IoError("{}: not a regular file", path.string());
  return static_cast<size_t>(info.st_size);
}

}  // namespace

bool is_there(const std::filesystem::path& path) noexcept {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

std::string read_text(const std::filesystem::path& path) {
  const Descriptor file(path, O_RDONLY);
  std::string text(file_size(file.get(), path), '\0');
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

void sync_directory(const std::filesystem::path& directory) {
  const Descriptor handle(directory.empty() ? std::filesystem::path(".") : directory, O_RDONLY | O_DIRECTORY);
  if (::fsync(handle.get()) != 0)
    throw IoError("{}: cannot sync: {}", directory.string(), std::strerror(errno));
}

void write_atomically(const std::filesystem::path& path, std::string_view text) {
  const std::filesystem::path temporary = path.string() + fmt::format(".tmp-{}", ::getpid());
  try {
    OutputFile file(temporary);
    file.write_all(std::as_bytes(std::span(text)));
    file.sync_and_close();
    std::filesystem::rename(temporary, path);
  } catch (const std::exception& error) {
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
    throw IoError("{}: cannot write: {}", path.string(), error.what());
  }
  sync_directory(path.parent_path());
}

OutputFile::OutputFile(const std::filesystem::path& path)
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

MappedFile::MappedFile(const std::filesystem::path& path) {
  const Descriptor file(path, O_RDONLY);
  size_ = file_size(file.get(), path);
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

}  // namespace tandem
