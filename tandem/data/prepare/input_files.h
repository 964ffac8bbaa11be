// Which files `tandem prepare` reads, and how.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace tandem {

enum class InputFormat { Text, JsonLines };
enum class Packing { None, Gzip, Zstd };

struct InputFile {
  std::filesystem::path path;
  InputFormat format = InputFormat::Text;
  Packing packing = Packing::None;
  int64_t bytes = 0;        // as they lie on disk
  int64_t modified_ns = 0;  // when
};

// A name is a file, a directory (all files in it and below, sorted, but hidden and empty ones), or a pattern
// such as data/*.jsonl. .jsonl, .ndjson and .json are JSON Lines, packed or not; all else is text. Throws
// DataError for what is not there or is empty.
std::vector<InputFile> find_inputs(std::span<const std::string> names);

}  // namespace tandem
