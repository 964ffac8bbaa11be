#include "tandem/metrics/append_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <span>
#include <string>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/file.h"

namespace tandem {

AppendFile::AppendFile(std::filesystem::path path) : path_(std::move(path)) {
  const bool is_new = !is_there(path_);
  fd_ = open_regular(path_, O_WRONLY | O_CREAT | O_APPEND);
  if (!is_new) return;
  try {
    sync_directory(path_.parent_path());  // else a power cut may take the file away, with all its lines
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

AppendFile::~AppendFile() {
  if (fd_ >= 0) ::close(fd_);
}

AppendFile::AppendFile(AppendFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

AppendFile& AppendFile::operator=(AppendFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  return *this;
}

void AppendFile::append_line(std::string_view line) {
  std::string text(line);
  text += '\n';
  std::span<const char> left(text);
  while (!left.empty()) {
    const ssize_t n = ::write(fd_, left.data(), left.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw IoError("{}: cannot write: {}", path_.string(), std::strerror(errno));
    left = left.subspan(static_cast<size_t>(n));
  }
}

void AppendFile::sync() {
  if (::fdatasync(fd_) != 0) throw IoError("{}: cannot sync: {}", path_.string(), std::strerror(errno));
}

void truncate_lines(const std::filesystem::path& path, const std::function<bool(std::string_view)>& keep) {
  require_regular(path);
  std::ifstream file(path, std::ios::binary);
  if (!file) return;
  std::uintmax_t kept = 0;
  for (std::string line; std::getline(file, line) && !file.eof() && keep(line);) kept += line.size() + 1;
  file.close();
  std::error_code error;
  if (std::filesystem::file_size(path, error) != kept && !error)
    std::filesystem::resize_file(path, kept, error);
  if (error) throw IoError("{}: cannot truncate: {}", path.string(), error.message());
}

}  // namespace tandem
