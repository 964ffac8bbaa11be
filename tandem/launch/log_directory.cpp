#include "tandem/launch/log_directory.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "tandem/base/error.h"

namespace tandem {

LogDirectory::LogDirectory(const std::string& wanted) : path_(wanted), temporary_(wanted.empty()) {
  std::error_code error;
  if (temporary_) {
    const std::filesystem::path parent = std::filesystem::temp_directory_path(error);
    std::string name = ((error ? "/tmp" : parent) / "tandem-launch-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr)
      throw IoError("{}: cannot make a directory for logs: {}; give one with --log-dir", name,
                    std::strerror(errno));
    path_ = name;
    return;
  }
  std::filesystem::create_directories(path_, error);
  if (error) throw IoError("--log-dir {}: cannot be made: {}", wanted, error.message());
}

LogDirectory::~LogDirectory() {
  std::error_code ignored;  // what cannot be removed stays behind in the temporary directory
  if (temporary_) std::filesystem::remove_all(path_, ignored);
}

std::filesystem::path LogDirectory::log_of(int rank) const {
  return path_ / fmt::format("rank-{}.log", rank);
}

}  // namespace tandem
