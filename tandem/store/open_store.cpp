#include <cstdlib>
#include <mutex>

#include "tandem/base/error.h"
#include "tandem/store/cache/read_ahead.h"
#include "tandem/store/disk_store.h"
#include "tandem/store/s3/s3_store.h"

namespace tandem {
namespace {

std::mutex storage_mutex;
StorageOptions storage;  // one for the process: a config has one, and an address stands for no more

}  // namespace

void use_storage(const StorageOptions& options) {
  const std::lock_guard lock(storage_mutex);
  storage = options;
}

bool is_remote(const std::string& address) { return address.starts_with(s3::kScheme); }

std::shared_ptr<Store> open_store(const std::string& address) {
  if (!is_remote(address)) return std::make_shared<DiskStore>(address);
  const std::lock_guard lock(storage_mutex);
  return std::make_shared<S3Store>(address, storage);
}

std::filesystem::path cache_directory() {
  const std::lock_guard lock(storage_mutex);
  if (!storage.cache.empty()) return storage.cache;
  for (const auto& [variable, below] :
       {std::pair("XDG_CACHE_HOME", "tandem"), std::pair("HOME", ".cache/tandem")}) {
    const char* value = std::getenv(variable);
    if (value != nullptr && *value != 0) return std::filesystem::path(value) / below;
  }
  throw ConfigError("storage.cache: expected a directory for what is read from stores: HOME is not set");
}

std::shared_ptr<ReadAhead> open_cached(const StoreRef& store) {
  // One for the process: a second would be the same files.
  static std::mutex mutex;
  static std::weak_ptr<BlockCache> current;
  const std::filesystem::path directory = cache_directory();
  const std::lock_guard lock(mutex);
  auto cache = current.lock();
  if (!cache || cache->directory() != directory) {
    int64_t size = 0;
    {
      const std::lock_guard options(storage_mutex);
      size = storage.cache_size;
    }
    current = cache = std::make_shared<BlockCache>(directory, size);
  }
  return std::make_shared<ReadAhead>(store.shared(), cache);
}

int64_t writer_memory(const std::string& address, int64_t bytes) {
  return is_remote(address) ? s3::upload_memory(bytes) : 0;
}

std::pair<std::string, std::string> split_address(const std::string& address) {
  std::string whole = address;
  while (whole.size() > s3::kScheme.size() && whole.ends_with("/")) whole.pop_back();
  const size_t slash = whole.rfind('/');
  if (slash < s3::kScheme.size())
    throw DataError("{}: expected an object below a bucket, s3://BUCKET/PREFIX/NAME", address);
  return {whole.substr(0, slash), whole.substr(slash + 1)};
}

}  // namespace tandem
