// Objects of a store that is far, read through a BlockCache. What will be read soon can be named before: a
// few threads fetch it meanwhile.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "tandem/store/cache/block_cache.h"
#include "tandem/store/store.h"

namespace tandem {

class CachedObject;

class ReadAhead : public std::enable_shared_from_this<ReadAhead> {
 public:
  static constexpr int kStreams = 8;
  static constexpr size_t kMostWaiting =
      1024;  // blocks that are named and not yet fetched; others are forgotten

  ReadAhead(std::shared_ptr<Store> store, std::shared_ptr<BlockCache> cache);
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  std::unique_ptr<CachedObject> open(const std::string& name);
  Store& store() const { return *store_; }

  struct Source {
    std::unique_ptr<ObjectReader> reader;
    std::string identity;  // of this version of it
    int64_t size = 0;

    int64_t block_bytes(int64_t block) const {
      return std::min(BlockCache::kBlock, size - block * BlockCache::kBlock);
    }
  };
  // `dst` is of the block's size. Of many who want it at the same time one fetches it. Throws as read_at.
  void read_block(const Source& source, int64_t block, std::span<std::byte> dst);
  void expect(const std::shared_ptr<const Source>& source, int64_t block);

 private:
  struct Wish {
    std::shared_ptr<const Source> source;  // shared: its object may be closed before its turn comes
    int64_t block;
    uint64_t key;
  };
  void work();
  void fetch(const Source& source, int64_t block, uint64_t key, std::span<std::byte> dst);

  std::shared_ptr<Store> store_;
  std::shared_ptr<BlockCache> cache_;
  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::unordered_set<uint64_t> busy_;    // being fetched
  std::unordered_set<uint64_t> wished_;  // those in wishes_
  std::deque<Wish> wishes_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

class CachedObject final : public ObjectReader {
 public:
  CachedObject(std::shared_ptr<ReadAhead> through, std::shared_ptr<const ReadAhead::Source> source)
      : through_(std::move(through)), source_(std::move(source)) {}
  int64_t size() const override { return source_->size; }
  void read_at(int64_t offset, std::span<std::byte> dst) const override;
  std::string description() const override { return source_->reader->description(); }
  void expect(int64_t offset, int64_t bytes) const;  // will be read soon

 private:
  std::shared_ptr<ReadAhead> through_;  // shared by all objects of a set
  std::shared_ptr<const ReadAhead::Source> source_;
};

}  // namespace tandem
