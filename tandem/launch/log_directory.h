// Where the ranks' logs are kept: the directory that was asked for, or a temporary one that is removed at
// the end unless it is kept for somebody to look at.
//
// A launcher that is killed cannot remove its own. It holds a lock on a file in it, which the kernel gives up
// with the process: a later launch of the same user removes those whose lock is free, and of those that were
// kept the ones that are older than kKeptFor.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

#include "tandem/launch/rank_notes.h"

namespace tandem {

class LogDirectory {
 public:
  static constexpr std::chrono::hours kKeptFor{24 * 7};

  explicit LogDirectory(const std::string& wanted);  // empty: temporary; throws IoError
  ~LogDirectory();
  LogDirectory(const LogDirectory&) = delete;
  LogDirectory& operator=(const LogDirectory&) = delete;

  std::filesystem::path log_of(int rank) const;
  RankNotes notes_of(int rank) const { return RankNotes::in(path_, rank); }
  const std::filesystem::path& path() const { return path_; }
  void keep();

 private:
  void make_temporary(const std::filesystem::path& parent);

  std::filesystem::path path_;
  bool temporary_ = false;
  int lock_ = -1;
};

}  // namespace tandem
