// Files that appear whole or not at all, and read-only mappings.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace tandem {

// False also where nobody can tell: a loop of links, a name that is too long.
bool is_there(const std::filesystem::path& path) noexcept;

std::string read_text(const std::filesystem::path& path);  // throws IoError naming the path

// Writes beside `path`, syncs, then renames: a reader or a crash sees the old file or the new one.
void write_atomically(const std::filesystem::path& path, std::string_view text);

void sync_directory(const std::filesystem::path& directory);

// A file descriptor that is closed on every path out; write_all and sync throw IoError naming the file.
class OutputFile {
 public:
  explicit OutputFile(const std::filesystem::path& path);  // creates or truncates
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  void write_all(std::span<const std::byte> bytes);
  void sync_and_close();

 private:
  std::filesystem::path path_;
  int fd_ = -1;
};

// A whole file mapped read-only.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace tandem
