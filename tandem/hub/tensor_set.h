// The tensors of a model's directory by name: one model.safetensors, or shards with their index, which is
// checked against them: each shard is there, and each tensor lies where the index says.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/hub/safetensors.h"

namespace tandem::hub {

class TensorSet {
 public:
  // A directory, or a safetensors file by itself. Throws DataError naming file and tensor.
  explicit TensorSet(const std::filesystem::path& path);

  const SafeTensor* find(std::string_view name) const;                   // nullptr when there is none
  const std::filesystem::path& file_of(const SafeTensor& tensor) const;  // for messages
  const std::map<std::string, const SafeTensor*, std::less<>>& by_name() const { return by_name_; }
  const std::filesystem::path& path() const { return path_; }  // as it was given
  int64_t total_bytes() const;
  // Bytes of a tensor from `offset` on. Throws IoError.
  void read(const SafeTensor& tensor, size_t offset, std::span<std::byte> dst) const {
    files_[file_of_.at(&tensor)].read(tensor, offset, dst);
  }

 private:
  void add(const std::filesystem::path& file);
  void read_index(const std::filesystem::path& index);

  std::filesystem::path path_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, const SafeTensor*, std::less<>> by_name_;
  std::map<const SafeTensor*, size_t> file_of_;
};

// Whether there are weights that a TensorSet reads.
bool holds_weights(const std::filesystem::path& directory);

}  // namespace tandem::hub
