// A directory that appears whole or not at all: it is filled under another name beside its place, and gets
// its own when all is on the disk. What a killed process left is removed by the next that writes to the same
// place.
#pragma once

#include <filesystem>

namespace tandem::hub {

class FreshDirectory {
 public:
  // Throws ConfigError where there is something else than an empty directory.
  explicit FreshDirectory(std::filesystem::path place);
  ~FreshDirectory();  // removes what was not committed
  FreshDirectory(const FreshDirectory&) = delete;
  FreshDirectory& operator=(const FreshDirectory&) = delete;

  const std::filesystem::path& path() const { return draft_; }  // to fill
  void commit();

 private:
  std::filesystem::path place_, draft_;
  bool committed_ = false;
};

}  // namespace tandem::hub
