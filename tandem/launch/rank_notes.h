// The files by which a rank tells its launcher more than an exit code can: those of comm/launch_notes.h, and
// torch's error file, in which a Python program's exception is described.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace tandem {

struct RankNotes {
  std::filesystem::path lost_peer, final_code, interrupted, error;

  static RankNotes in(const std::filesystem::path& directory, int rank);

  void remove() const;  // what an earlier process has left there
  bool has_lost_peer() const;
  bool has_final_code() const;
  std::string error_message() const;  // the first line that says something; empty where there is none

  struct Interruption {
    int signal = 0;
    std::filesystem::file_time_type time;
  };
  std::optional<Interruption> interruption() const;
};

}  // namespace tandem
