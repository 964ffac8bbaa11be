// A log of lines. A line goes to the kernel in one write, so a kill of this process loses none that were
// appended; only the last one can be half there, after a power cut or on a full disk.
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

namespace tandem {

class AppendFile {
 public:
  explicit AppendFile(std::filesystem::path path);  // creates it where it is missing
  ~AppendFile();
  AppendFile(AppendFile&& other) noexcept;
  AppendFile& operator=(AppendFile&& other) noexcept;

  void append_line(std::string_view line);  // throws IoError naming the file
  void sync();                              // returns when all lines are on disk

 private:
  std::filesystem::path path_;
  int fd_ = -1;
};

// Cuts the file before its first line that is incomplete or that `keep` refuses. A missing file stays so.
void truncate_lines(const std::filesystem::path& path,
                    const std::function<bool(std::string_view line)>& keep);

}  // namespace tandem
