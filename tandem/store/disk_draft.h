// A draft on a disk: the directory .tmp-BUNDLE-TOKEN, which a commit renames to BUNDLE. Whoever fills it
// holds a shared lock on it, so that it is told from what killed processes left behind.
#pragma once

#include "tandem/store/draft.h"

namespace tandem {

std::filesystem::path draft_path(const std::filesystem::path& directory, const std::string& bundle,
                                 const std::string& token);

// Where a bundle goes for the moment in which another of its name takes its place, on file systems that
// cannot exchange two directories; and whose place it is, where it is one.
std::filesystem::path aside_path(const std::filesystem::path& bundle);
std::optional<std::string> bundle_set_aside(const std::filesystem::path& path);

class DiskDraft final : public Draft {
 public:
  DiskDraft(const std::filesystem::path& directory, const std::string& bundle, const std::string& token);
  ~DiskDraft() override;
  DiskDraft(const DiskDraft&) = delete;
  DiskDraft& operator=(const DiskDraft&) = delete;

  std::string description() const override { return path_.string(); }
  std::unique_ptr<ObjectWriter> create(const std::string& name) override;
  std::unique_ptr<ObjectReader> open(const std::string& name) const override;
  void put(const std::string& name, std::string_view text) override;
  void remove(const std::string& name) override;
  void remove_all() noexcept override;
  std::vector<StoredObject> list() const override;
  std::string committed_name(const std::string& name) const override { return name; }
  void commit(std::string_view index, std::span<const std::string> notes) override;
  void drop_replaced() noexcept override;
  State state() const override;

 private:
  bool is_at(const std::filesystem::path& path) const;  // this very directory, whatever its name now
  void rename_to_target();

  std::filesystem::path directory_;
  std::string bundle_;
  std::filesystem::path path_;
  std::filesystem::path target_;
  std::filesystem::path replaced_;  // where an older bundle of that name is after a commit
  int lock_ = -1;
};

}  // namespace tandem
