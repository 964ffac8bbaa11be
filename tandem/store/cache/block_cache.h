// Blocks of objects that are far, kept on a local disk. Bounded, and shared by all processes that name the
// same directory: the ranks of a node read every block over the network once.
//
// One file has slots for blocks, another says what is in them. A block may lie in any of a few slots, which
// its key names; a new one takes a free one of these, or one at random. There are no locks: whoever reads a
// slot compares it with its digest. What is being overwritten meanwhile, what a crash left half written and
// what a disk has forgotten all count as not there.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "tandem/base/descriptor.h"

namespace tandem {

class BlockCache {
 public:
  static constexpr int64_t kBlock = int64_t{256} << 10;

  // Makes the directory. `bytes` is the most that lies in it; a cache of another size that is there goes.
  // Throws IoError where it cannot be made, and ConfigError where the disk has not as much room.
  BlockCache(const std::filesystem::path& directory, int64_t bytes);
  ~BlockCache();
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;

  // Of one block of one version of an object.
  static uint64_t key_of(const std::string& object, int64_t block);

  // False where it is not there. May be called by many threads and processes, as all of these.
  bool find(uint64_t key, std::span<std::byte> dst) const;
  bool may_have(uint64_t key) const;  // without a look at its bytes
  // Where there is no room on the disk, nothing is kept.
  void keep(uint64_t key, std::span<const std::byte> block);

  const std::filesystem::path& directory() const { return directory_; }

 private:
  struct Entry {
    uint64_t key;     // 0: free
    uint64_t digest;  // of the bytes, with the key
  };
  int64_t first_way(uint64_t key) const;

  std::filesystem::path directory_;
  int64_t num_slots_;
  std::optional<Descriptor> blocks_;
  Entry* entries_ = nullptr;  // mapped, shared with other processes
};

}  // namespace tandem
