#include "tandem/metrics/offline/run_name.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <random>

namespace tandem {

namespace fs = std::filesystem;

std::string run_name(const fs::path& run_dir) {
  return fs::absolute(run_dir / "x").lexically_normal().parent_path().filename().string();
}

std::string random_id(size_t length, std::string_view characters) {
  std::random_device device;
  std::uniform_int_distribution<size_t> any(0, characters.size() - 1);
  std::string id;
  while (id.size() < length) id += characters[any(device)];
  return id;
}

std::string from_environment(const char* variable, std::string_view otherwise) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != 0 ? value : std::string(otherwise);
}

fs::path newest_named(const fs::path& folder, std::string_view begin, std::string_view end) {
  fs::path newest;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(begin) && name.ends_with(end) && entry.path() > newest) newest = entry.path();
  }
  return newest;
}

std::string lacks(const fs::path& path, int64_t step, int64_t last) {
  return fmt::format("{}: has no rows of step {} and some up to {}", path.string(), step, last);
}

}  // namespace tandem
