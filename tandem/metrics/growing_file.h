// A file of records that grows, as sinks write them: what is added is there whole. A kill of this process
// loses nothing that was added; what a full disk left of an addition is taken away before the next.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace tandem {

class GrowingFile {
 public:
  GrowingFile() = default;  // of nothing
  // Creates it where it is missing, and goes on behind the first `bytes` of it. Throws IoError.
  GrowingFile(std::filesystem::path path, int64_t bytes);
  ~GrowingFile();
  GrowingFile(GrowingFile&& other) noexcept;
  GrowingFile& operator=(GrowingFile&& other) noexcept;

  void append(std::string_view bytes) { replace_tail(size_, bytes); }

  // The file is its first `keep` bytes, and these. Throws IoError; then a part of them may be there.
  void replace_tail(int64_t keep, std::string_view bytes);

  void sync();  // returns when a power cut cannot lose what was written

  int64_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  void cut(int64_t bytes);

  std::filesystem::path path_;
  int fd_ = -1;
  int64_t size_ = 0;
  bool torn_ = false;  // there may be a part of an addition behind them
};

// Keeps a copy of a damaged file beside it, as damaged-1.ENDING, -2, ..., and gives its path.
std::filesystem::path keep_damaged_copy(const std::filesystem::path& path, std::string_view ending);

}  // namespace tandem
