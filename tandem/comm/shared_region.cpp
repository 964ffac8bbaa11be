#include "tandem/comm/shared_region.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include "tandem/base/descriptor.h"
#include "tandem/base/error.h"

namespace tandem {
namespace {

// Nobody can make it shorter under a rank that uses it. Only a memfd has them.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

struct Ticket {
  int64_t pid = 0;
  int64_t fd = 0;
};

Ticket parse_ticket(const std::string& text) {
  Ticket ticket;
  const char* end = text.data() + text.size();
  const auto [space, error] = std::from_chars(text.data(), end, ticket.pid);
  if (error == std::errc() && space != end && *space == ' ' && ticket.pid > 0) {
    const auto [rest, fd_error] = std::from_chars(space + 1, end, ticket.fd);
    if (fd_error == std::errc() && rest == end && ticket.fd >= 0) return ticket;
  }
  throw CommError("shared memory: expected a process and a descriptor, found '{:.80}'", text);
}

int open_again(const Descriptor& found, int flags) {
  return ::open(fmt::format("/proc/self/fd/{}", found.get()).c_str(), flags | O_CLOEXEC);
}

// Looks first without opening it (O_PATH), then asks for its seals through a descriptor that only reads.
int open_ticket(const std::string& text, int64_t bytes) {
  const Ticket ticket = parse_ticket(text);
  const std::string process = fmt::format("/proc/{}", ticket.pid);
  const std::string path = fmt::format("{}/fd/{}", process, ticket.fd);
  const Descriptor found(::open(path.c_str(), O_PATH | O_CLOEXEC));
  struct stat owner {
  }, status{};
  struct statfs system {};
  if (found.get() < 0 || ::stat(process.c_str(), &owner) != 0) {
    throw CommError(
        "shared memory: cannot open {}, of a rank on this host: {}; set TANDEM_TRANSPORT=tcp on all ranks "
        "to use the network instead",
        path, std::strerror(errno));
  }
  const bool is_memory = fstat(found.get(), &status) == 0 && fstatfs(found.get(), &system) == 0 &&
                         S_ISREG(status.st_mode) && status.st_nlink == 0 && system.f_type == TMPFS_MAGIC;
  if (is_memory && owner.st_uid == geteuid() && status.st_uid == geteuid() && status.st_size == bytes) {
    const Descriptor reader(open_again(found, O_RDONLY));
    const int seals = reader.get() < 0 ? -1 : fcntl(reader.get(), F_GET_SEALS);  // the kernel may add one
    if (seals >= 0 && (seals & kSeals) == kSeals) {
      const int fd = open_again(found, O_RDWR);
      if (fd >= 0) return fd;
    }
  }
  throw CommError(
      "shared memory: {} is not the sealed memory of {} bytes of this user's that a rank was to name; who "
      "serves the store?",
      path, bytes);
}

}  // namespace

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
  Descriptor file(memfd_create("tandem", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (file.get() < 0) throw CommError("shared memory: cannot create it: {}", std::strerror(errno));
  if (ftruncate(file.get(), bytes) != 0)
    throw CommError("shared memory: cannot get {} bytes: {}", bytes, std::strerror(errno));
  if (fcntl(file.get(), F_ADD_SEALS, kSeals) != 0)
    throw CommError("shared memory: cannot seal it: {}", std::strerror(errno));
  return std::shared_ptr<SharedRegion>(new SharedRegion(file.release(), bytes));
}

std::shared_ptr<SharedRegion> SharedRegion::open(const std::string& ticket, int64_t bytes) {
  auto region = std::shared_ptr<SharedRegion>(new SharedRegion(open_ticket(ticket, bytes), bytes));
  region->close_ticket();
  return region;
}

std::string SharedRegion::ticket() const { return fmt::format("{} {}", getpid(), fd_); }

void SharedRegion::close_ticket() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

}  // namespace tandem
