#include "tandem/hub/placed_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/file.h"

namespace tandem::hub {

PlacedReader::PlacedReader(const std::filesystem::path& path)
    : path_(path), fd_(open_regular(path, O_RDONLY)) {}

PlacedReader::~PlacedReader() {
  if (fd_ >= 0) ::close(fd_);
}

PlacedReader::PlacedReader(PlacedReader&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

PlacedReader& PlacedReader::operator=(PlacedReader&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  return *this;
}

void PlacedReader::read(size_t offset, std::span<std::byte> dst) const {
  while (!dst.empty()) {
    const ssize_t count = ::pread(fd_, dst.data(), dst.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0)
      throw IoError("{}: cannot read at byte {}: {}", path_.string(), offset, std::strerror(errno));
    if (count == 0)
      throw IoError("{}: ends at byte {}: it was cut while it was read", path_.string(), offset);
    offset += static_cast<size_t>(count);
    dst = dst.subspan(static_cast<size_t>(count));
  }
}

}  // namespace tandem::hub
