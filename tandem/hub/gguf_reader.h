// A GGUF file of anybody's: its keys, and where its tensors lie. Nothing is believed before it was checked:
// lengths and counts against the bytes that are left, types and names known and said once, shapes without
// overflow, rows of whole blocks, tensors one behind the other from the first byte to the last. Time and
// memory are bounded by the size of what comes before the tensors.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tandem/base/file.h"
#include "tandem/base/shape.h"

namespace tandem::hub {

// An array is known by what it holds and how much of it.
struct GgufArray {
  std::string_view of;  // "str", "f32" ...
  uint64_t count = 0;
};

using GgufValue = std::variant<uint64_t, int64_t, double, bool, std::string, GgufArray>;

struct GgufTensorInfo {
  std::string name;
  std::string_view type;  // "Q8_0"
  Shape shape;            // outermost first; an extent that the file leaves out is left out
  std::span<const std::byte> bytes;
};

struct GgufContents {
  uint32_t version = 0;
  std::map<std::string, GgufValue, std::less<>> keys;
  std::vector<GgufTensorInfo> tensors;  // in the order of their places

  // Nothing where the key is absent or of another kind.
  std::optional<int64_t> integer(std::string_view key) const;
  std::optional<double> real(std::string_view key) const;
  std::optional<std::string> text(std::string_view key) const;
  std::optional<uint64_t> length(std::string_view key) const;  // of an array
};

// Throws DataError that starts with `origin`, and names the key or the tensor where it is one's fault.
GgufContents parse_gguf(std::span<const std::byte> file, const std::string& origin);

class GgufFile {
 public:
  // Throws DataError as parse_gguf, IoError where the file cannot be opened.
  explicit GgufFile(const std::filesystem::path& path)
      : file_(path), contents_(parse_gguf(file_.bytes(), path.string())) {}

  const GgufContents& contents() const { return contents_; }

 private:
  MappedFile file_;
  GgufContents contents_;
};

}  // namespace tandem::hub
