// A safetensors file: 8 bytes with the length of a header, the header in JSON (each tensor's type, shape and
// place), and the tensors. The file is mapped, and nothing of it is believed before every rule of the format
// has been checked: lengths within the file, types known, shapes without overflow, places that follow each
// other from the first byte to the last without hole or overlap, no name twice.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/file.h"
#include "tandem/base/shape.h"
#include "tandem/hub/placed_reader.h"

namespace tandem::hub {

inline constexpr uint64_t kMostHeaderBytes = 100'000'000;

struct SafeTensor {
  std::string name;
  std::string dtype;  // as the file says it: "BF16"
  Shape shape;
  std::span<const std::byte> bytes;  // in the map
};

// In the order of their places. Throws DataError that starts with `origin`, and names the tensor where it is
// one's fault. `metadata` takes what stands under __metadata__.
std::vector<SafeTensor> parse_safetensors(std::span<const std::byte> file, const std::string& origin,
                                          std::map<std::string, std::string>* metadata = nullptr);

class SafetensorsFile {
 public:
  // Throws DataError as parse_safetensors, IoError where the file cannot be opened.
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const std::vector<SafeTensor>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  // Bytes of one of the tensors, without its pages becoming this process's memory.
  void read(const SafeTensor& tensor, size_t offset, std::span<std::byte> dst) const {
    reader_.read(static_cast<size_t>(tensor.bytes.data() - file_.bytes().data()) + offset, dst);
  }

 private:
  std::filesystem::path path_;
  MappedFile file_;
  PlacedReader reader_;
  std::map<std::string, std::string> metadata_;
  std::vector<SafeTensor> tensors_;
};

}  // namespace tandem::hub
