#include "tandem/comm/kept_memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <sstream>
#include <utility>

#include "tandem/base/error.h"

namespace tandem {
namespace {

// Only memory of this user's may be meant, never a file on a disk.
bool is_own_memory(int fd) {
  struct stat status {};
  struct statfs system {};
  return ::fstat(fd, &status) == 0 && ::fstatfs(fd, &system) == 0 && S_ISREG(status.st_mode) &&
         status.st_nlink == 0 && system.f_type == TMPFS_MAGIC && status.st_uid == ::geteuid();
}

}  // namespace

KeptMemory::KeptMemory(int num_ranks) {
  for (int i = 0; i < num_ranks * kKeptFiles; ++i) {
    files_.push_back(std::make_unique<Descriptor>(::memfd_create("tandem-kept", MFD_CLOEXEC)));
    if (files_.back()->get() < 0)
      throw CommError("memory for copies of the ranks' state: {}", std::strerror(errno));
  }
}

std::string KeptMemory::ticket() const {
  std::string text = std::to_string(::getpid());
  for (const auto& file : files_) text += fmt::format(" {}", file->get());
  return text;
}

KeptFile::KeptFile(KeptFile&& other) noexcept
    : file_(std::move(other.file_)), mapped_(std::exchange(other.mapped_, {})) {}

std::vector<KeptFile> KeptFile::open_all(const std::string& ticket) {
  std::istringstream words(ticket);
  int64_t pid = 0, fd = 0;
  std::vector<KeptFile> files;
  if (!(words >> pid))
    throw CommError("{}: expected a process and descriptors, found '{:.80}'", kKeptVariable, ticket);
  while (words >> fd) {
    const std::string path = fmt::format("/proc/{}/fd/{}", pid, fd);
    // Looked at before it is opened.
    const Descriptor found(::open(path.c_str(), O_PATH | O_CLOEXEC));
    const bool is_ours = found.get() >= 0 && is_own_memory(found.get());
    auto file = std::make_unique<Descriptor>(
        is_ours ? ::open(fmt::format("/proc/self/fd/{}", found.get()).c_str(), O_RDWR | O_CLOEXEC) : -1);
    if (file->get() < 0)
      throw CommError("{}: {} is not memory that the launcher of this rank keeps; is it still there?",
                      kKeptVariable, path);
    files.emplace_back(std::move(file));
  }
  if (files.empty() || files.size() % kKeptFiles != 0 || !words.eof())
    throw CommError("{}: expected {} descriptors a rank, found '{:.80}'", kKeptVariable, kKeptFiles, ticket);
  return files;
}

void KeptFile::unmap() {
  if (!mapped_.empty()) ::munmap(mapped_.data(), mapped_.size());
  mapped_ = {};
}

std::span<std::byte> KeptFile::map() {
  struct stat status {};
  if (::fstat(file_->get(), &status) != 0) throw CommError("memory for copies: {}", std::strerror(errno));
  if (static_cast<size_t>(status.st_size) == mapped_.size()) return mapped_;
  unmap();
  if (status.st_size == 0) return {};
  const auto bytes = static_cast<size_t>(status.st_size);
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_->get(), 0);
  if (address == MAP_FAILED)
    throw CommError("memory for copies: cannot map {} bytes: {}", bytes, std::strerror(errno));
  mapped_ = {static_cast<std::byte*>(address), bytes};
  return mapped_;
}

// Taken now, so that a machine without that memory says so here and not by a signal later.
std::span<std::byte> KeptFile::map(int64_t bytes) {
  if (static_cast<int64_t>(mapped_.size()) == bytes) return mapped_;
  unmap();
  if (::ftruncate(file_->get(), bytes) != 0)
    throw CommError("memory for copies: cannot get {} bytes: {}", bytes, std::strerror(errno));
  if (const int error = bytes > 0 ? ::posix_fallocate(file_->get(), 0, bytes) : 0; error != 0)
    throw CommError("memory for copies: cannot get {} bytes: {}; free memory, or set checkpoint.memory=0",
                    bytes, std::strerror(error));
  return map();
}

}  // namespace tandem
