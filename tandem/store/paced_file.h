// A large file that is written at the disk's own speed: each few MiB are given to the disk as soon as they
// are complete, and what lies 32 MiB behind is waited for, so that the system never has much to write at once
// and the sync at the end finds little. What was written stays in the page cache for whoever reads it next.
#pragma once

#include <filesystem>
#include <span>

#include "tandem/base/file.h"

namespace tandem {

class PacedFile {
 public:
  static constexpr int64_t kPiece = int64_t{4} << 20;
  static constexpr int64_t kBehind = int64_t{32} << 20;

  explicit PacedFile(const std::filesystem::path& path);  // creates or truncates
  // Throw IoError naming the file: "cannot write" where the disk is full or broken, whenever that shows.
  void write_all(std::span<const std::byte> bytes);
  void sync_and_close() { file_.sync_and_close(); }
  int descriptor() const { return file_.descriptor(); }

 private:
  void pace();
  // False where the file system has no such call.
  bool range(int64_t offset, unsigned flags) const;

  std::filesystem::path path_;
  OutputFile file_;
  int64_t written_ = 0;
  bool is_paced_ = true;
};

}  // namespace tandem
