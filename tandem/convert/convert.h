// Config files of other programs as configs of Tandem: `tandem convert`.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tandem/config/load.h"
#include "tandem/convert/draft.h"

namespace tandem::convert {

struct Request {
  std::filesystem::path file;
  std::string format;            // of format_names(), or empty: found from the file's keys
  std::optional<int64_t> ranks;  // that the file was used with
};

struct Converted {
  std::string format;
  std::string yaml;   // loads: load_config of it gives no error
  int64_t ranks = 1;  // of the config's mesh
  std::vector<Finding> findings;
  size_t num_keys = 0;
};

std::vector<std::string_view> format_names();

// `fill` stands for model.from (config/load.h). Throws ConfigError where the file is of no known format, is
// wrong in itself, or says what no config of ours can.
Converted convert_file(const Request& request, const FillModel& fill = {});

}  // namespace tandem::convert
