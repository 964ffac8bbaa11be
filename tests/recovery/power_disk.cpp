// power_disk IMAGE LOG MOUNTPOINT: a disk for tests whose power can be cut afterwards. MOUNTPOINT/disk has
// the bytes of IMAGE; each write to it, and each flush, is a record in LOG, in order. A loop device over it
// carries a file system.
//
// A record is three numbers of 64 bits (what: 0 a write, 1 a flush; offset; bytes) and, of a write, its
// bytes.
#define FUSE_USE_VERSION 31

#include <fcntl.h>
#include <fuse3/fuse.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <mutex>

namespace {

constexpr const char* kFile = "/disk";
int image = -1, records = -1;
std::mutex order;

// A record is one call, so that who reads the log's length between two has whole ones.
bool note(uint64_t what, uint64_t offset, const char* data, uint64_t bytes) {
  uint64_t head[] = {what, offset, bytes};
  iovec parts[] = {{head, sizeof(head)}, {const_cast<char*>(data), bytes}};
  return ::writev(records, parts, 2) == static_cast<ssize_t>(sizeof(head) + bytes);
}

int get_attributes(const char* path, struct stat* out, fuse_file_info*) {
  *out = {};
  if (std::strcmp(path, "/") == 0) {
    out->st_mode = S_IFDIR | 0700;
    out->st_nlink = 2;
    return 0;
  }
  if (std::strcmp(path, kFile) != 0) return -ENOENT;
  return ::fstat(image, out) < 0 ? -errno : 0;
}

int list(const char*, void* buffer, fuse_fill_dir_t fill, off_t, fuse_file_info*, fuse_readdir_flags) {
  fill(buffer, kFile + 1, nullptr, 0, static_cast<fuse_fill_dir_flags>(0));
  return 0;
}

int open_file(const char* path, fuse_file_info*) { return std::strcmp(path, kFile) == 0 ? 0 : -ENOENT; }

int read_bytes(const char*, char* out, size_t size, off_t offset, fuse_file_info*) {
  const ssize_t got = ::pread(image, out, size, offset);
  return got < 0 ? -errno : static_cast<int>(got);
}

int write_bytes(const char*, const char* data, size_t size, off_t offset, fuse_file_info*) {
  const std::lock_guard lock(order);
  if (!note(0, static_cast<uint64_t>(offset), data, size)) return -EIO;
  const ssize_t put = ::pwrite(image, data, size, offset);
  return put < 0 ? -errno : static_cast<int>(put);
}

int flush_disk(const char*, int, fuse_file_info*) {
  const std::lock_guard lock(order);
  return note(1, 0, nullptr, 0) ? 0 : -EIO;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: power_disk IMAGE LOG MOUNTPOINT\n");
    return 2;
  }
  image = ::open(argv[1], O_RDWR | O_CLOEXEC);
  records = ::open(argv[2], O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
  if (image < 0 || records < 0) {
    std::fprintf(stderr, "power_disk: %s: %s\n", image < 0 ? argv[1] : argv[2], std::strerror(errno));
    return 1;
  }
  fuse_operations operations{};
  operations.getattr = get_attributes;
  operations.readdir = list;
  operations.open = open_file;
  operations.read = read_bytes;
  operations.write = write_bytes;
  operations.fsync = flush_disk;
  char foreground[] = "-f";
  char* arguments[] = {argv[0], foreground, argv[3], nullptr};
  return fuse_main(3, arguments, &operations, nullptr);
}
