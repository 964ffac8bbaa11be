#include "tandem/metrics/growing_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/file.h"

namespace tandem {

namespace fs = std::filesystem;

GrowingFile::GrowingFile(fs::path path, int64_t bytes)
    : path_(std::move(path)), fd_(open_regular(path_, O_RDWR | O_CREAT)) {
  try {
    cut(bytes);
    sync_directory(path_.parent_path());
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

GrowingFile::~GrowingFile() {
  if (fd_ >= 0) ::close(fd_);
}

GrowingFile::GrowingFile(GrowingFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      size_(other.size_),
      torn_(other.torn_) {}

GrowingFile& GrowingFile::operator=(GrowingFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  std::swap(torn_, other.torn_);
  return *this;
}

void GrowingFile::cut(int64_t bytes) {
  if (::ftruncate(fd_, bytes) != 0)
    throw IoError("{}: cannot truncate: {}", path_.string(), std::strerror(errno));
  size_ = bytes;
}

void GrowingFile::replace_tail(int64_t keep, std::string_view bytes) {
  const int64_t size = keep + static_cast<int64_t>(bytes.size());
  if (torn_ || size < size_) cut(keep);
  torn_ = true;
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = ::pwrite(fd_, bytes.data() + done, bytes.size() - done,
                               static_cast<off_t>(keep) + static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw IoError("{}: cannot write: {}", path_.string(), std::strerror(errno));
    done += static_cast<size_t>(n);
  }
  torn_ = false;
  size_ = size;
}

void GrowingFile::sync() {
  if (fd_ >= 0 && ::fdatasync(fd_) != 0)
    throw IoError("{}: cannot sync: {}", path_.string(), std::strerror(errno));
}

fs::path keep_damaged_copy(const fs::path& path, std::string_view ending) {
  fs::path copy;
  for (int number = 1; is_there(copy = path.parent_path() / fmt::format("damaged-{}.{}", number, ending));)
    ++number;
  std::error_code error;
  fs::copy_file(path, copy, error);
  if (error) throw IoError("{}: cannot keep a copy of {}: {}", copy.string(), path.string(), error.message());
  return copy;
}

}  // namespace tandem
