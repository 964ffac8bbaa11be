// plain_fs BACKING MOUNTPOINT: a file system for tests, with the files of BACKING and without what some
// shared file systems lack: no locks, no renamed directories, no exchange, and a rename over another file
// takes that one away a moment before.
#define FUSE_USE_VERSION 31

#include <dirent.h>
#include <fcntl.h>
#include <fuse3/fuse.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

namespace {

constexpr auto kGap = std::chrono::microseconds(300);  // in which a replaced file is not there

std::string backing;

std::string at(const char* path) { return backing + path; }
int answer(int result) { return result < 0 ? -errno : 0; }
int answer(ssize_t result) { return result < 0 ? -errno : static_cast<int>(result); }
int file_of(const fuse_file_info* info) { return static_cast<int>(info->fh); }

int get_attributes(const char* path, struct stat* out, fuse_file_info* info) {
  return answer(info != nullptr ? ::fstat(file_of(info), out) : ::lstat(at(path).c_str(), out));
}

int read_link(const char* path, char* out, size_t size) {
  const ssize_t length = ::readlink(at(path).c_str(), out, size - 1);
  if (length < 0) return -errno;
  out[length] = 0;
  return 0;
}

int make_directory(const char* path, mode_t mode) { return answer(::mkdir(at(path).c_str(), mode)); }
int remove_file(const char* path) { return answer(::unlink(at(path).c_str())); }
int remove_directory(const char* path) { return answer(::rmdir(at(path).c_str())); }
int make_symlink(const char* text, const char* path) { return answer(::symlink(text, at(path).c_str())); }
int make_link(const char* from, const char* to) { return answer(::link(at(from).c_str(), at(to).c_str())); }
int set_mode(const char* path, mode_t mode, fuse_file_info*) {
  return answer(::chmod(at(path).c_str(), mode));
}
int set_owner(const char* path, uid_t user, gid_t group, fuse_file_info*) {
  return answer(::lchown(at(path).c_str(), user, group));
}
int set_times(const char* path, const timespec times[2], fuse_file_info*) {
  return answer(::utimensat(AT_FDCWD, at(path).c_str(), times, AT_SYMLINK_NOFOLLOW));
}
int set_size(const char* path, off_t size, fuse_file_info* info) {
  return answer(info != nullptr ? ::ftruncate(file_of(info), size) : ::truncate(at(path).c_str(), size));
}

int rename_file(const char* from, const char* to, unsigned flags) {
  if (flags != 0) return -EINVAL;
  struct stat entry {};
  if (::lstat(at(from).c_str(), &entry) != 0) return -errno;
  if (S_ISDIR(entry.st_mode)) return -EXDEV;
  if (::unlink(at(to).c_str()) == 0) std::this_thread::sleep_for(kGap);
  return answer(::rename(at(from).c_str(), at(to).c_str()));
}

int open_file(const char* path, fuse_file_info* info) {
  const int fd = ::open(at(path).c_str(), info->flags);
  if (fd < 0) return -errno;
  info->fh = static_cast<uint64_t>(fd);
  return 0;
}

int create_file(const char* path, mode_t mode, fuse_file_info* info) {
  const int fd = ::open(at(path).c_str(), info->flags | O_CREAT, mode);
  if (fd < 0) return -errno;
  info->fh = static_cast<uint64_t>(fd);
  return 0;
}

int read_file(const char*, char* out, size_t size, off_t offset, fuse_file_info* info) {
  return answer(::pread(file_of(info), out, size, offset));
}
int write_file(const char*, const char* bytes, size_t size, off_t offset, fuse_file_info* info) {
  return answer(::pwrite(file_of(info), bytes, size, offset));
}
int free_space(const char* path, struct statvfs* out) { return answer(::statvfs(at(path).c_str(), out)); }
int close_file(const char*, fuse_file_info* info) { return answer(::close(file_of(info))); }
int sync_file(const char*, int, fuse_file_info* info) { return answer(::fsync(file_of(info))); }
int sync_folder(const char* path, int, fuse_file_info*) {
  const int fd = ::open(at(path).c_str(), O_RDONLY | O_DIRECTORY);
  if (fd < 0) return -errno;
  const int result = answer(::fsync(fd));
  ::close(fd);
  return result;
}

int list_directory(const char* path, void* out, fuse_fill_dir_t fill, off_t, fuse_file_info*,
                   fuse_readdir_flags) {
  DIR* directory = ::opendir(at(path).c_str());
  if (directory == nullptr) return -errno;
  while (const dirent* entry = ::readdir(directory))
    fill(out, entry->d_name, nullptr, 0, fuse_fill_dir_flags{});
  ::closedir(directory);
  return 0;
}

int no_lock(const char*, fuse_file_info*, int) { return -ENOLCK; }
int no_record_lock(const char*, fuse_file_info*, int, struct flock*) { return -ENOLCK; }

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "plain_fs BACKING MOUNTPOINT\n");
    return 2;
  }
  backing = argv[1];
  fuse_operations operations{};
  operations.getattr = get_attributes;
  operations.readlink = read_link;
  operations.mkdir = make_directory;
  operations.unlink = remove_file;
  operations.rmdir = remove_directory;
  operations.symlink = make_symlink;
  operations.rename = rename_file;
  operations.link = make_link;
  operations.chmod = set_mode;
  operations.chown = set_owner;
  operations.truncate = set_size;
  operations.open = open_file;
  operations.create = create_file;
  operations.read = read_file;
  operations.write = write_file;
  operations.statfs = free_space;
  operations.release = close_file;
  operations.fsync = sync_file;
  operations.fsyncdir = sync_folder;
  operations.readdir = list_directory;
  operations.utimens = set_times;
  operations.flock = no_lock;
  operations.lock = no_record_lock;
  std::string name = argv[0],
              option = "-oallow_other,default_permissions,attr_timeout=0,entry_timeout=0,negative_timeout=0",
              foreground = "-f", place = argv[2];
  char* arguments[] = {name.data(), foreground.data(), option.data(), place.data()};
  return fuse_main(4, arguments, &operations, nullptr);
}
