// How a prepared set appears whole or not at all: it is filled beside its place, or in the machine's cache
// directory where its place is far away, and its index comes last.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "tandem/base/descriptor.h"
#include "tandem/store/lease.h"
#include "tandem/store/store.h"

namespace tandem {

inline constexpr const char* kPreparedIndex = "index.json";

// The directory that is being written, for one process at a time.
class PartialDirectory {
 public:
  explicit PartialDirectory(const std::filesystem::path& path);  // throws IoError where another one writes it
  const std::filesystem::path& path() const { return path_; }
  void empty() const;
  void remove() const noexcept;

 private:
  std::filesystem::path path_;
  Descriptor lock_;
  std::unique_ptr<Lease> lease_;  // where the file system has no locks
};

std::filesystem::path named_directory(const std::filesystem::path& out);  // "dir/" names "dir"

// A far place, which must not hold a set yet.
std::shared_ptr<Store> open_for_new_set(const std::string& address);
std::filesystem::path partial_of(const Store& far);  // where its set is filled
void put_file(Store& store, const std::filesystem::path& file);
// All files that are still there, the index last: it makes the rest a set. Then the directory goes.
void put_rest(Store& store, const std::filesystem::path& partial);

}  // namespace tandem
