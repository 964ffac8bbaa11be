#include "tandem/store/cache/block_cache.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/quantity.h"
#include "tandem/base/system.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kWays = 8;  // slots that a block may lie in
constexpr std::string_view kName = "blocks-";
constexpr uint64_t kBeingWritten =
    ~uint64_t{0};  // no block's key; of a writer that was killed, it is overwritten one day

int open_block(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) throw IoError("{}: cannot open: {}", path.string(), std::strerror(errno));
  return fd;
}

void resize(int fd, const fs::path& path, int64_t bytes) {
  if (::ftruncate(fd, static_cast<off_t>(bytes)) == 0) return;
  throw IoError("{}: cannot make it {} long: {}", path.string(), format_bytes(bytes), std::strerror(errno));
}

int64_t allocated(int fd) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 ? static_cast<int64_t>(info.st_blocks) * 512 : 0;
}

uint64_t digest_of(uint64_t key, std::span<const std::byte> bytes) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), key);
}

template <typename T>
std::atomic_ref<T> shared(T& value) {
  return std::atomic_ref<T>(value);
}

}  // namespace

BlockCache::BlockCache(const fs::path& directory, int64_t bytes)
    : directory_(directory), num_slots_(bytes / kBlock / kWays * kWays) {
  if (num_slots_ < kWays) {
    throw ConfigError("storage.cache_size {}: expected at least {}", format_bytes(bytes),
                      format_bytes(kWays * kBlock));
  }
  make_directories(directory_);
  const std::string name = fmt::format("{}{}", kName, num_slots_);
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory_, ignored)) {
    const std::string other = entry.path().filename().string();
    if (other.starts_with(kName) && other != name && other != name + ".index")
      fs::remove(entry.path(), ignored);
  }
  const int64_t size = num_slots_ * kBlock;
  blocks_.emplace(open_block(directory_ / name));
  const int64_t missing = size - allocated(blocks_->get()), free = free_disk_bytes(directory_);
  if (missing > free) {
    throw ConfigError(
        "{}: storage.cache_size is {}, of which {} are still to be taken, but {} are free there; "
        "lower it, or set storage.cache to another directory",
        directory_.string(), format_bytes(size), format_bytes(missing), format_bytes(free));
  }
  resize(blocks_->get(), directory_ / name, size);
  const auto index_bytes = static_cast<size_t>(num_slots_) * sizeof(Entry);
  const fs::path index_path = directory_ / (name + ".index");
  const Descriptor index(open_block(index_path));
  resize(index.get(), index_path, static_cast<int64_t>(index_bytes));
  void* mapped = ::mmap(nullptr, index_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, index.get(), 0);
  if (mapped == MAP_FAILED) throw IoError("{}: cannot map: {}", index_path.string(), std::strerror(errno));
  entries_ = static_cast<Entry*>(mapped);
}

BlockCache::~BlockCache() { ::munmap(entries_, static_cast<size_t>(num_slots_) * sizeof(Entry)); }

uint64_t BlockCache::key_of(const std::string& object, int64_t block) {
  const uint64_t key = XXH3_64bits_withSeed(object.data(), object.size(), static_cast<uint64_t>(block));
  return key == 0 || key == kBeingWritten ? 1 : key;
}

int64_t BlockCache::first_way(uint64_t key) const {
  return static_cast<int64_t>(key % static_cast<uint64_t>(num_slots_ / kWays)) * kWays;
}

bool BlockCache::may_have(uint64_t key) const {
  const int64_t first = first_way(key);
  for (int64_t slot = first; slot < first + kWays; ++slot) {
    if (shared(entries_[slot].key).load(std::memory_order_acquire) == key) return true;
  }
  return false;
}

bool BlockCache::find(uint64_t key, std::span<std::byte> dst) const {
  TANDEM_CHECK(static_cast<int64_t>(dst.size()) <= kBlock);
  const int64_t first = first_way(key);
  for (int64_t slot = first; slot < first + kWays; ++slot) {
    if (shared(entries_[slot].key).load(std::memory_order_acquire) != key) continue;
    const uint64_t digest = shared(entries_[slot].digest).load(std::memory_order_relaxed);
    const ssize_t got = ::pread(blocks_->get(), dst.data(), dst.size(), static_cast<off_t>(slot * kBlock));
    if (got == static_cast<ssize_t>(dst.size()) && digest_of(key, dst) == digest) return true;
  }
  return false;
}

void BlockCache::keep(uint64_t key, std::span<const std::byte> block) {
  TANDEM_CHECK(static_cast<int64_t>(block.size()) <= kBlock);
  thread_local std::minstd_rand random(std::random_device{}());
  const int64_t first = first_way(key);
  // Two who come at the same time take different ones, as long as some are free.
  int64_t slot = first;
  for (; slot < first + kWays; ++slot) {
    uint64_t there = shared(entries_[slot].key).load(std::memory_order_relaxed);
    if ((there == key || there == 0) &&
        shared(entries_[slot].key).compare_exchange_strong(there, kBeingWritten))
      break;
  }
  if (slot == first + kWays) {
    slot = first + static_cast<int64_t>(random() % kWays);
    shared(entries_[slot].key).store(kBeingWritten, std::memory_order_relaxed);
  }
  const ssize_t put = ::pwrite(blocks_->get(), block.data(), block.size(), static_cast<off_t>(slot * kBlock));
  if (put != static_cast<ssize_t>(block.size())) {
    shared(entries_[slot].key).store(0, std::memory_order_relaxed);
    return;
  }
  shared(entries_[slot].digest).store(digest_of(key, block), std::memory_order_relaxed);
  shared(entries_[slot].key).store(key, std::memory_order_release);
}

}  // namespace tandem
