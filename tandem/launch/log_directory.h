// Where the ranks' logs are kept: the directory that was asked for, or a temporary one that is removed at
// the end unless it is kept for somebody to look at.
#pragma once

#include <filesystem>
#include <string>

#include "tandem/launch/rank_notes.h"

namespace tandem {

class LogDirectory {
 public:
  explicit LogDirectory(const std::string& wanted);  // empty: temporary; throws IoError
  ~LogDirectory();
  LogDirectory(const LogDirectory&) = delete;
  LogDirectory& operator=(const LogDirectory&) = delete;

  std::filesystem::path log_of(int rank) const;
  RankNotes notes_of(int rank) const { return RankNotes::in(path_, rank); }
  const std::filesystem::path& path() const { return path_; }
  void keep() { temporary_ = false; }

 private:
  std::filesystem::path path_;
  bool temporary_ = false;
};

}  // namespace tandem
