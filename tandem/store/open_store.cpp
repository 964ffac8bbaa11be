#include <mutex>

#include "tandem/base/error.h"
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
