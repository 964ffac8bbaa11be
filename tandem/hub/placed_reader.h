// Bytes of a file by their place.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace tandem::hub {

// For any number of threads at once. Unlike a map's, no page of the file becomes this process's memory.
class PlacedReader {
 public:
  explicit PlacedReader(const std::filesystem::path& path);
  ~PlacedReader();
  PlacedReader(PlacedReader&& other) noexcept;
  PlacedReader& operator=(PlacedReader&& other) noexcept;
  // Throws IoError naming the file, also where it ends before.
  void read(size_t offset, std::span<std::byte> dst) const;

 private:
  std::filesystem::path path_;
  int fd_ = -1;
};

}  // namespace tandem::hub
