#include "tandem/runtime/arena.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "tandem/base/error.h"

namespace tandem {

HostArena::HostArena(int64_t bytes, ThreadPool& pool) : bytes_(bytes) {
  if (bytes == 0) return;
  const auto size = static_cast<size_t>(bytes);
  void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    throw PlanError("memory: the system refused an arena of {} bytes ({})", bytes, std::strerror(errno));
  }
  data_ = static_cast<std::byte*>(data);
  ::madvise(data_, size, MADV_HUGEPAGE);  // advice: an answer of "no" changes speed only
  // Anonymous memory comes zeroed: one byte a page is enough to have it.
  constexpr int64_t kChunk = 4 << 20, kPage = 4096;
  pool.parallel_for((bytes + kChunk - 1) / kChunk, [&](int64_t chunk, int) {
    const int64_t end = std::min(bytes, (chunk + 1) * kChunk);
    for (int64_t at = chunk * kChunk; at < end; at += kPage)
      static_cast<volatile std::byte*>(data_)[at] = std::byte{0};
  });
}

HostArena::~HostArena() {
  if (data_ != nullptr) ::munmap(data_, static_cast<size_t>(bytes_));
}

HostArena::HostArena(HostArena&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

HostArena& HostArena::operator=(HostArena&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace tandem
