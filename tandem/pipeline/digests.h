// Digests of files and directories, kept by size and time of change so that a second look costs a stat.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace tandem::pipeline {

inline constexpr const char* kDigests = "digests.json";  // in a pipeline's store

class Digests {
 public:
  Digests() = default;
  // `file` keeps them between runs; one that cannot be read holds none.
  explicit Digests(std::filesystem::path file);

  // Of a file's bytes, or of the names and bytes of all that is in a directory. A link to a file counts as
  // the file, one to a directory as what is in it. Throws DataError where there is something else than these,
  // IoError where it cannot be read.
  std::string of(const std::filesystem::path& path);

  void save();  // where something is new

 private:
  struct Known {
    int64_t bytes = 0, changed_ns = 0;
    uint64_t inode = 0;
    std::string digest;
  };
  std::string of_directory(const std::filesystem::path& path, std::vector<std::filesystem::path>& within);
  std::string of_file(const std::filesystem::path& path);

  std::filesystem::path file_;
  std::map<std::string, Known> known_;
  bool is_new_ = false;
};

std::string digest_of(std::string_view text);

}  // namespace tandem::pipeline
