// A directory of this machine or of a shared file system as a store: an object is a file of that name, a
// bundle a directory, an alias a symbolic link. What is not there yet is hidden by its name, .tmp-*, and
// appears by a rename; a lock on it tells the living from the dead. Where directories cannot be renamed, a
// bundle appears as in stores over a network, by a put of its index.
#pragma once

#include "tandem/store/file_system.h"
#include "tandem/store/store.h"

namespace tandem {

class DiskStore final : public Store {
 public:
  explicit DiskStore(std::filesystem::path directory) : directory_(std::move(directory)) {}

  std::string description(const std::string& name) const override { return path_of(name).string(); }
  std::unique_ptr<ObjectReader> open(const std::string& name) const override;
  bool exists(const std::string& name) const override;
  std::unique_ptr<ObjectWriter> create(const std::string& name) override;
  std::vector<StoredObject> list(const std::string& prefix) const override;
  void remove(const std::string& name) override;
  int64_t free_bytes() const override;
  bool put_new(const std::string& name, std::string_view text) override;

  void make() override;
  void put(const std::string& name, std::string_view text) override;
  std::unique_ptr<ObjectBytes> map(const std::string& name) const override;

  std::vector<std::string> bundles() const override;  // also directories without an index: they are damaged
  std::unique_ptr<Draft> draft(const std::string& bundle, const std::string& token) override;
  void remove_draft(const std::string& bundle, const std::string& token) override;
  void remove_bundle(const std::string& bundle) override;
  void set_alias(const std::string& alias, const std::string& name) override;
  std::optional<std::string> alias(const std::string& name) const override;
  void put_back_replaced() override;
  // What a living process is filling stays. Names that are hidden are always ours.
  std::vector<std::string> remove_leftovers(const BundleNames& ours) override;
  std::vector<StoredObject> unfinished() const override;
  void remove_unfinished(const StoredObject& object) override;

 private:
  bool renames_bundles() const;
  std::filesystem::path path_of(const std::string& name) const {
    return name.empty() ? directory_ : directory_ / name;
  }

  std::filesystem::path directory_;
};

// Opens a file for reading at any place. Throws as open_regular (base/file.h).
std::unique_ptr<ObjectReader> open_file(const std::filesystem::path& path);

}  // namespace tandem
