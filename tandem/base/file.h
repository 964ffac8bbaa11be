// Files that appear whole or not at all, and read-only mappings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

// False also where nobody can tell: a loop of links, a name that is too long.
bool is_there(const std::filesystem::path& path) noexcept;

// Throws DataError where there is something else than a regular file: a FIFO would make its reader wait for
// ever, a device may do anything. Nothing there is fine.
void require_regular(const std::filesystem::path& path);

// A descriptor of a regular file, which the caller closes. Never waits. Throws DataError as require_regular,
// and IoError where it cannot be opened.
int open_regular(const std::filesystem::path& path, int flags);

// Opens it, so that a network file system looks anew. Throws as open_regular.
int64_t regular_file_bytes(const std::filesystem::path& path);

// Throws IoError naming the path, DataError where it is no regular file or has more bytes than `most`.
inline constexpr int64_t kMostText = int64_t{1} << 30;
std::string read_text(const std::filesystem::path& path, int64_t most = kMostText);

// Writes beside `path`, syncs, then renames: a reader or a crash sees the old file or the new one.
void write_atomically(const std::filesystem::path& path, std::string_view text);

// Removes what write_atomically left beside the files of these names when its process was killed; a process
// that is still writing keeps its own. Gives the paths that cannot be removed.
std::vector<std::filesystem::path> remove_dead_temporaries(const std::filesystem::path& directory,
                                                           std::initializer_list<std::string_view> names);

void sync_directory(const std::filesystem::path& directory);

// Makes the directory and what is missing above it, and returns when a power cut cannot take them away.
void make_directories(const std::filesystem::path& directory);

// From here on a write beyond the limit of file sizes (ulimit -f) fails, and is told as any other that does,
// instead of ending the process without a word. Programs that this one starts are as before.
void survive_file_size_limit();

// A file descriptor that is closed on every path out; write_all and sync throw IoError naming the file.
class OutputFile {
 public:
  explicit OutputFile(const std::filesystem::path& path);  // creates or truncates
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  void write_all(std::span<const std::byte> bytes);
  void sync_and_close();
  int descriptor() const { return fd_; }

 private:
  std::filesystem::path path_;
  int fd_ = -1;
};

// Of a map: pages that will be read at once are brought in by one call, and pages that were read no longer
// count as this process's memory (the system keeps them as long as it likes). Hints, which change no byte.
void expect_pages(std::span<const std::byte> mapped);
void release_pages(std::span<const std::byte> mapped);

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
