#include "tandem/metrics/rank_log.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "tandem/base/error.h"
#include "tandem/base/file.h"

namespace tandem {
namespace {

std::FILE* open_log(const std::filesystem::path& path) {
  std::error_code ignored;  // opening it tells
  std::filesystem::create_directories(path.parent_path(), ignored);
  require_regular(path);
  std::FILE* const file = std::fopen(path.c_str(), "ae");
  if (file == nullptr) throw IoError("{}: cannot write the log: {}", path.string(), std::strerror(errno));
  return file;
}

}  // namespace

RankLog::RankLog(const std::filesystem::path& run_dir, int rank, int64_t total_steps)
    : file_(open_log(run_dir / "logs" / fmt::format("rank-{}.log", rank)), std::fclose),
      lines_(total_steps, {.out = file_.get(), .terminal = false, .timed = true}) {}

}  // namespace tandem
