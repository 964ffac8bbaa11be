// Lines of any rank's output that hold one of some words, once more in a file of their own:
// --duplicate-stdout-filters and --duplicate-stderr-filters.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/launch/terminal.h"

namespace tandem {

class LineFilter {
 public:
  LineFilter() = default;  // takes nothing
  // In `directory`: filtered_stdout.log and filtered_stderr.log, each where it has words. Throws IoError.
  LineFilter(const std::filesystem::path& directory, std::vector<std::string> out_words,
             std::vector<std::string> err_words);
  ~LineFilter();
  LineFilter(const LineFilter&) = delete;
  LineFilter& operator=(const LineFilter&) = delete;

  void take(OutputStream stream, std::string_view prefix, std::string_view line);

 private:
  std::vector<std::string> words_[2];
  int fds_[2] = {-1, -1};
};

}  // namespace tandem
