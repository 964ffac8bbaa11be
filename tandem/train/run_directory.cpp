#include "tandem/train/run_directory.h"

#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/config/print.h"

namespace tandem {

namespace fs = std::filesystem;

ResumeFrom parse_resume(const std::string& text) {
  if (text == "latest") return {ResumeFrom::Kind::Latest, {}};
  if (text == "none") return {ResumeFrom::Kind::None, {}};
  if (!fs::exists(text)) {
    throw DataError(
        "{}: no such checkpoint; --resume-from-checkpoint takes latest, none or a checkpoint's directory",
        text);
  }
  return {ResumeFrom::Kind::Path, text};
}

RunDirectory::RunDirectory(fs::path path) : path_(std::move(path)) {
  if (!path_.has_filename()) path_ = path_.parent_path();  // "runs/a/"
}

RunDirectory::RunDirectory(fs::path path, const ResumeFrom& resume) : RunDirectory(std::move(path)) {
  try {
    if (resume.kind == ResumeFrom::Kind::None && fs::exists(path_) && !fs::is_empty(path_)) {
      int number = 1;
      while (fs::exists(moved_to_ = fs::path(fmt::format("{}.{}", path_.string(), number)))) ++number;
      fs::rename(path_, moved_to_);
    }
    fs::create_directories(path_ / "logs");
  } catch (const fs::filesystem_error& error) {
    throw IoError("{}: cannot make the run directory: {}", path_.string(), error.code().message());
  }
}

void RunDirectory::write_config(const Config& config) const {
  write_atomically(path_ / "config.yaml", to_yaml(config));
}

void RunDirectory::write_plan(const CompiledStep& step) const {
  write_atomically(path_ / "plan.json", to_json(step).dump(1) + "\n");
}

}  // namespace tandem
