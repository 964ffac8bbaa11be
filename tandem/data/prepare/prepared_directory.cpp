#include "tandem/data/prepare/prepared_directory.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "tandem/base/digest.h"
#include "tandem/base/error.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

int made(const fs::path& path) {
  fs::create_directories(path);
  return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

}  // namespace

PartialDirectory::PartialDirectory(const fs::path& path) : path_(path), lock_(made(path)) {
  if (lock_.get() < 0) throw IoError("{}: cannot be opened", path.string());
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) == 0) return;
  std::string holder = "another tandem prepare";
  if (errno != EWOULDBLOCK && (lease_ = Lease::take(path.string() + ".lock", holder))) return;
  throw IoError("{}: {} is writing it; wait for it, or end it", path.string(), holder);
}

void PartialDirectory::empty() const {
  for (const fs::directory_entry& entry : fs::directory_iterator(path_)) fs::remove_all(entry.path());
}

void PartialDirectory::remove() const noexcept {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

fs::path named_directory(const fs::path& out) {
  fs::path target = out.lexically_normal();
  return target.has_filename() ? target : target.parent_path();
}

std::shared_ptr<Store> open_for_new_set(const std::string& address) {
  auto store = open_store(address);
  store->make();
  if (store->exists(kPreparedIndex))
    throw ConfigError("{}: already holds a set; remove it or name another place", store->description(""));
  return store;
}

fs::path partial_of(const Store& far) {
  const std::string place = far.description("");
  return cache_directory() / fmt::format("prepare-{}.partial", digest_hex(std::as_bytes(std::span(place))));
}

void put_file(Store& store, const fs::path& file) {
  constexpr size_t kPiece = size_t{1} << 20;
  const auto source = StoreRef(file.parent_path())->open(file.filename().string());
  const auto object = store.create(file.filename().string());
  std::vector<std::byte> piece(kPiece);
  for (int64_t at = 0; at < source->size(); at += static_cast<int64_t>(kPiece)) {
    const auto part = std::span(piece).first(
        static_cast<size_t>(std::min(static_cast<int64_t>(kPiece), source->size() - at)));
    source->read_at(at, part);
    object->write_all(part);
  }
  object->finish();
}

void put_rest(Store& store, const fs::path& partial) {
  for (const fs::directory_entry& entry : fs::directory_iterator(partial)) {
    if (entry.path().filename() != kPreparedIndex) put_file(store, entry.path());
  }
  put_file(store, partial / kPreparedIndex);
  fs::remove_all(partial);
}

}  // namespace tandem
