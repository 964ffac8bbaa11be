// For tests: a store in memory that has what S3 has and nothing more. Objects appear when they are finished,
// there are no renames, locks or links; whoever needs more than the interface promises fails here.
#pragma once

#include <atomic>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>

#include "tandem/base/error.h"
#include "tandem/store/draft.h"
#include "tandem/store/store.h"

namespace tandem {

class MemoryStore final : public Store {
 public:
  std::string description(const std::string& name) const override { return "memory/" + name; }

  std::unique_ptr<ObjectReader> open(const std::string& name) const override {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(name);
    if (found == objects_.end()) throw IoError("{}: cannot open: no such object", description(name));
    return std::make_unique<Reader>(description(name), found->second);
  }
  bool exists(const std::string& name) const override {
    const std::lock_guard lock(mutex_);
    return objects_.contains(name);
  }
  std::unique_ptr<ObjectWriter> create(const std::string& name) override {
    return std::make_unique<Writer>(*this, name);
  }
  std::vector<StoredObject> list(const std::string& prefix) const override {
    const std::lock_guard lock(mutex_);
    std::vector<StoredObject> found;
    for (const auto& [name, bytes] : objects_) {
      if (name.starts_with(prefix))
        found.push_back({name, static_cast<int64_t>(bytes->size()), modified_.at(name)});
    }
    return found;
  }
  void remove(const std::string& name) override {
    const std::lock_guard lock(mutex_);
    objects_.erase(name);
  }
  bool put_new(const std::string& name, std::string_view text) override {
    const auto bytes = std::as_bytes(std::span(text));
    const std::lock_guard lock(mutex_);
    if (objects_.contains(name)) return false;
    objects_[name] = std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end());
    modified_[name] = clock_s;
    return true;
  }
  int64_t free_bytes() const override { return std::numeric_limits<int64_t>::max(); }

  std::atomic<int64_t> clock_s{0};  // what it says of objects that are put; a test moves it

 private:
  using Bytes = std::shared_ptr<const std::vector<std::byte>>;  // a reader keeps what was replaced meanwhile

  class Reader final : public ObjectReader {
   public:
    Reader(std::string description, Bytes bytes)
        : description_(std::move(description)), bytes_(std::move(bytes)) {}
    int64_t size() const override { return static_cast<int64_t>(bytes_->size()); }
    void read_at(int64_t offset, std::span<std::byte> dst) const override {
      const auto from = static_cast<size_t>(offset);
      if (from > bytes_->size() || dst.size() > bytes_->size() - from)
        throw DataError("{}: truncated: ends at byte {}", description_, bytes_->size());
      if (!dst.empty()) std::memcpy(dst.data(), bytes_->data() + from, dst.size());
    }
    std::string description() const override { return description_; }

   private:
    std::string description_;
    Bytes bytes_;
  };

  class Writer final : public ObjectWriter {
   public:
    Writer(MemoryStore& store, std::string name) : store_(store), name_(std::move(name)) {}
    void write_all(std::span<const std::byte> bytes) override {
      bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    }
    void finish() override {
      const std::lock_guard lock(store_.mutex_);
      store_.objects_[name_] = std::make_shared<const std::vector<std::byte>>(std::move(bytes_));
      store_.modified_[name_] = store_.clock_s;
    }

   private:
    MemoryStore& store_;
    std::string name_;
    std::vector<std::byte> bytes_;
  };

  mutable std::mutex mutex_;
  std::map<std::string, Bytes> objects_;
  std::map<std::string, int64_t> modified_;
};

}  // namespace tandem
