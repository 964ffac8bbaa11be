#include "tandem/comm/shared_region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tandem/base/error.h"

namespace tandem {

SharedRegion::SharedRegion(int fd, int64_t bytes) : fd_(fd), bytes_(bytes) {
  const int flags = fd < 0 ? MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
  void* address = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, flags, fd, 0);
  if (address == MAP_FAILED) {
    const int error = errno;
    close_ticket();
    throw CommError("shared memory: cannot map {} bytes: {}", bytes, std::strerror(error));
  }
  data_ = static_cast<std::byte*>(address);
}

SharedRegion::~SharedRegion() {
  munmap(data_, static_cast<size_t>(bytes_));
  close_ticket();
}

std::shared_ptr<SharedRegion> SharedRegion::for_threads(int64_t bytes) {
  return std::shared_ptr<SharedRegion>(new SharedRegion(-1, bytes));
}

std::shared_ptr<SharedRegion> SharedRegion::create(int64_t bytes) {
  const int fd = memfd_create("tandem", MFD_CLOEXEC);
  if (fd < 0) throw CommError("shared memory: cannot create it: {}", std::strerror(errno));
  if (ftruncate(fd, bytes) != 0) {
    const int error = errno;
    ::close(fd);
    throw CommError("shared memory: cannot get {} bytes: {}", bytes, std::strerror(error));
  }
  return std::shared_ptr<SharedRegion>(new SharedRegion(fd, bytes));
}

std::shared_ptr<SharedRegion> SharedRegion::open(const std::string& ticket, int64_t bytes) {
  const int fd = ::open(ticket.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) {
    throw CommError(
        "shared memory: cannot open {}, of a rank on this host: {}; set TANDEM_TRANSPORT=gloo on all ranks "
        "to use the network instead",
        ticket, std::strerror(errno));
  }
  auto region = std::shared_ptr<SharedRegion>(new SharedRegion(fd, bytes));
  region->close_ticket();
  return region;
}

std::string SharedRegion::ticket() const { return fmt::format("/proc/{}/fd/{}", getpid(), fd_); }

void SharedRegion::close_ticket() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

}  // namespace tandem
