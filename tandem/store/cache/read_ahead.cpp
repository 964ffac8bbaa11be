#include "tandem/store/cache/read_ahead.h"

#include <algorithm>
#include <cstring>

#include "tandem/base/error.h"

namespace tandem {

ReadAhead::ReadAhead(std::shared_ptr<Store> store, std::shared_ptr<BlockCache> cache)
    : store_(std::move(store)), cache_(std::move(cache)) {}

ReadAhead::~ReadAhead() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::unique_ptr<CachedObject> ReadAhead::open(const std::string& name) {
  auto source = std::make_shared<Source>();
  source->reader = store_->open(name);
  source->size = source->reader->size();
  source->identity =
      fmt::format("{}\n{}\n{}", source->reader->description(), source->size, source->reader->version());
  return std::make_unique<CachedObject>(shared_from_this(), std::move(source));
}

void ReadAhead::fetch(const Source& source, int64_t block, uint64_t key, std::span<std::byte> dst) {
  std::exception_ptr failure;
  try {
    if (!cache_->find(key, dst)) {  // somebody may have kept it since the last look
      source.reader->read_at(block * BlockCache::kBlock, dst);
      cache_->keep(key, dst);
    }
  } catch (...) {
    failure = std::current_exception();
  }
  {
    const std::lock_guard lock(mutex_);
    busy_.erase(key);
  }
  changed_.notify_all();
  if (failure) std::rethrow_exception(failure);
}

void ReadAhead::read_block(const Source& source, int64_t block, std::span<std::byte> dst) {
  const uint64_t key = BlockCache::key_of(source.identity, block);
  while (!cache_->find(key, dst)) {
    std::unique_lock lock(mutex_);
    if (busy_.insert(key).second) {
      lock.unlock();
      return fetch(source, block, key, dst);
    }
    changed_.wait(lock, [&] { return !busy_.contains(key); });
  }
}

void ReadAhead::expect(const std::shared_ptr<const Source>& source, int64_t block) {
  const uint64_t key = BlockCache::key_of(source->identity, block);
  if (cache_->may_have(key)) return;
  {
    const std::lock_guard lock(mutex_);
    if (wishes_.size() >= kMostWaiting || busy_.contains(key) || !wished_.insert(key).second) return;
    wishes_.push_back({source, block, key});
    if (threads_.empty()) {
      for (int i = 0; i < kStreams; ++i) threads_.emplace_back([this] { work(); });
    }
  }
  changed_.notify_all();
}

void ReadAhead::work() {
  std::vector<std::byte> buffer(BlockCache::kBlock);
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !wishes_.empty(); });
    if (stop_) return;
    const Wish wish = std::move(wishes_.front());
    wishes_.pop_front();
    wished_.erase(wish.key);
    if (!busy_.insert(wish.key).second) continue;  // its reader has come already
    lock.unlock();
    try {
      const auto dst = std::span(buffer).first(static_cast<size_t>(wish.source->block_bytes(wish.block)));
      fetch(*wish.source, wish.block, wish.key, dst);
    } catch (const std::exception&) {  // whoever reads it will see why
    }
    lock.lock();
  }
}

void CachedObject::read_at(int64_t offset, std::span<std::byte> dst) const {
  if (offset < 0 || offset > size() || static_cast<int64_t>(dst.size()) > size() - offset)
    throw DataError("{}: truncated: ends at byte {}", description(), size());
  thread_local std::vector<std::byte> whole(BlockCache::kBlock);
  while (!dst.empty()) {
    const int64_t block = offset / BlockCache::kBlock, within = offset % BlockCache::kBlock;
    const int64_t bytes = source_->block_bytes(block);
    const int64_t taken = std::min(bytes - within, static_cast<int64_t>(dst.size()));
    if (taken == bytes) {
      through_->read_block(*source_, block, dst.first(static_cast<size_t>(bytes)));
    } else {
      through_->read_block(*source_, block, std::span(whole).first(static_cast<size_t>(bytes)));
      std::memcpy(dst.data(), whole.data() + within, static_cast<size_t>(taken));
    }
    offset += taken;
    dst = dst.subspan(static_cast<size_t>(taken));
  }
}

void CachedObject::expect(int64_t offset, int64_t bytes) const {
  if (bytes <= 0 || offset < 0 || offset >= size()) return;
  const int64_t last = (std::min(offset + bytes, size()) - 1) / BlockCache::kBlock;
  for (int64_t block = offset / BlockCache::kBlock; block <= last; ++block) through_->expect(source_, block);
}

}  // namespace tandem
