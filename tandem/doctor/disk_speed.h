// How fast a folder takes and gives bytes, by writing some of them there and reading them back. The file has
// no name, so that nothing is left behind whatever happens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace tandem::doctor {

struct DiskSpeed {
  double write_bytes_per_s = 0;  // until they are on the disk
  double read_bytes_per_s = 0;   // 0 where the system would not forget what it had just written
  std::string problem;           // why there is no figure; empty: there is
};

DiskSpeed measure_disk(const std::filesystem::path& folder, int64_t bytes);

}  // namespace tandem::doctor
