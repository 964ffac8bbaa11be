#include "tandem/store/paced_file.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tandem/base/error.h"

namespace tandem {

PacedFile::PacedFile(const std::filesystem::path& path) : path_(path), file_(path) {}

void PacedFile::write_all(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto left = static_cast<size_t>(kPiece - written_ % kPiece);
    const auto piece = bytes.first(std::min(bytes.size(), left));
    file_.write_all(piece);
    written_ += static_cast<int64_t>(piece.size());
    bytes = bytes.subspan(piece.size());
    if (is_paced_ && written_ % kPiece == 0) pace();
  }
}

void PacedFile::pace() {
  is_paced_ = range(written_ - kPiece, SYNC_FILE_RANGE_WRITE);
  if (!is_paced_ || written_ - kPiece < kBehind) return;
  is_paced_ = range(written_ - kPiece - kBehind,
                    SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
}

bool PacedFile::range(int64_t offset, unsigned flags) const {
  while (::sync_file_range(file_.descriptor(), offset, kPiece, flags) != 0) {
    if (errno == EINTR) continue;
    if (errno == EIO || errno == ENOSPC || errno == EDQUOT)
      throw IoError("{}: cannot write: {}", path_.string(), std::strerror(errno));
    return false;
  }
  return true;
}

}  // namespace tandem
