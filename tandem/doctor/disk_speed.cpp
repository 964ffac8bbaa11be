#include "tandem/doctor/disk_speed.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "tandem/base/descriptor.h"
#include "tandem/base/system.h"

namespace tandem::doctor {
namespace {

constexpr size_t kWriteBytes = size_t{1} << 20;

// A file without a name. Some file systems know none: there it has one for a moment.
int open_nameless(const std::filesystem::path& folder) {
  const int fd = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return fd;
  std::string path = (folder / ".tandem-doctor-XXXXXX").string();
  const int named = ::mkostemp(path.data(), O_CLOEXEC);
  if (named >= 0) ::unlink(path.c_str());
  return named;
}

}  // namespace

DiskSpeed measure_disk(const std::filesystem::path& folder, int64_t bytes) {
  DiskSpeed speed;
  const auto failed = [&](const char* what) {
    speed.problem = std::string(what) + ": " + std::strerror(errno);
    return speed;
  };
  const Descriptor file(open_nameless(folder));
  if (file.get() < 0) return failed("no file can be made");
  // Not zeros, which some disks do not store.
  std::vector<uint64_t> chunk(kWriteBytes / sizeof(uint64_t));
  uint64_t state = 0x9e3779b97f4a7c15u;
  for (uint64_t& word : chunk) word = state = state * 6364136223846793005u + 1442695040888963407u;
  const double begun = steady_s();
  for (int64_t done = 0; done < bytes;) {
    const ssize_t wrote = ::write(file.get(), chunk.data(), std::min<size_t>(kWriteBytes, bytes - done));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return failed("nothing can be written");
    done += wrote;
  }
  if (::fdatasync(file.get()) != 0) return failed("what was written is not on the disk");
  speed.write_bytes_per_s = static_cast<double>(bytes) / std::max(1e-9, steady_s() - begun);
  // Read from the disk and not from memory; a file system that is memory keeps it, and is as fast as that.
  if (::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED) != 0) return speed;
  const double read_begun = steady_s();
  for (int64_t done = 0; done < bytes;) {
    const ssize_t got = ::pread(file.get(), chunk.data(), kWriteBytes, done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return failed("what was written cannot be read");
    done += got;
  }
  speed.read_bytes_per_s = static_cast<double>(bytes) / std::max(1e-9, steady_s() - read_begun);
  return speed;
}

}  // namespace tandem::doctor
