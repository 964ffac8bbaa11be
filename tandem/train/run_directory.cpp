#include "tandem/train/run_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/system.h"
#include "tandem/config/print.h"
#include "tandem/store/file_system.h"
#include "tandem/store/store.h"

namespace tandem {

namespace fs = std::filesystem;

ResumeFrom parse_resume(const std::string& text) {
  if (text == "latest") return {ResumeFrom::Kind::Latest, {}};
  if (text == "none") return {ResumeFrom::Kind::None, {}};
  if (!is_remote(text) && !is_there(text)) {
    throw DataError(
        "{}: no such checkpoint; --resume-from-checkpoint takes latest, none or a checkpoint's directory",
        text);
  }
  return {ResumeFrom::Kind::Path, text};
}

namespace {
constexpr const char* kLeaseName = ".lock";  // hidden: it may be beside what is no run yet
}

RunLock::~RunLock() {
  if (fd_ >= 0) ::close(fd_);
}

void RunLock::take(const fs::path& directory, double patience_s) {
  if (fd_ >= 0) ::close(fd_);
  fd_ = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  lease_.reset();
  const double give_up_at = steady_s() + patience_s;
  while (fd_ >= 0 && ::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK || steady_s() >= give_up_at) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  if (fd_ < 0 || ::flock(fd_, LOCK_EX | LOCK_NB) == 0) return;
  std::string holder = "another process";
  if (errno != EWOULDBLOCK && (lease_ = Lease::take(directory / kLeaseName, holder))) return;
  throw ConfigError("{}: {} is training there; wait for it, stop it, or name another --run-dir",
                    directory.string(), holder);
}

namespace {

bool holds_run(const fs::path& directory) {
  return is_there(directory / "events.jsonl") || is_there(directory / "plan.json") ||
         is_there(directory / "checkpoints") || is_there(directory / "logs");
}

// What this process prints into, or a launcher or a file system has put there before a run begins.
bool may_be_beside(const fs::path& file) {
  const std::string name = file.filename().string();
  struct stat entry {};
  if (name.starts_with(".") || name == "lost+found" || ::stat(file.c_str(), &entry) != 0) return true;
  for (int stream : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat own {};
    if (::fstat(stream, &own) == 0 && own.st_dev == entry.st_dev && own.st_ino == entry.st_ino) return true;
  }
  return false;
}

}  // namespace

void check_run_directory(const fs::path& path) {
  if (!fs::exists(path)) return;
  if (!fs::is_directory(path))
    throw ConfigError("{}: is a file; a run needs a directory: name another --run-dir", path.string());
  if (fs::exists(path / "config.yaml") && !fs::exists(path / "plan.json")) {
    throw ConfigError(
        "{}: holds a config.yaml that no run has written, and would overwrite it; name another --run-dir",
        path.string());
  }
  if (holds_run(path)) return;
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    if (may_be_beside(entry.path())) continue;
    throw ConfigError(
        "{}: is no run's directory, and holds {}; name another --run-dir, or a new one inside it",
        path.string(), entry.path().filename().string());
  }
}

RunDirectory::RunDirectory(fs::path path) : path_(std::move(path)) {
  if (!path_.has_filename()) path_ = path_.parent_path();  // "runs/a/"
}

RunDirectory::RunDirectory(fs::path path, const ResumeFrom& resume) : RunDirectory(std::move(path)) {
  try {
    check_run_directory(path_);
    if (resume.kind == ResumeFrom::Kind::None && holds_run(path_)) {
      int number = 1;
      while (fs::exists(moved_to_ = fs::path(fmt::format("{}.{}", path_.string(), number)))) ++number;
      move_directory(path_, moved_to_);
    }
    make_directories(path_);
  } catch (const fs::filesystem_error& error) {
    throw IoError("{}: cannot make the run directory: {}", path_.string(), error.code().message());
  }
}

std::vector<fs::path> RunDirectory::remove_leftovers() const {
  return remove_dead_temporaries(
      path_, {"config.yaml", "plan.json", "store.json", "summary.json", "metrics.jsonl", "metrics.csv"});
}

void RunDirectory::write_config(const Config& config, const std::string& changed) const {
  const fs::path path = path_ / "config.yaml";
  std::string history;  // of changes at earlier resumes
  if (fs::exists(path)) {
    std::istringstream lines(read_text(path));
    for (std::string line; std::getline(lines, line) && line.starts_with("#");) history += line + "\n";
  }
  const std::string line = changed.empty() ? "" : fmt::format("# {}\n", changed);
  if (!history.ends_with(line)) history += line;  // once, however often it was killed before its next save
  write_atomically(path, history + to_yaml(config));
}

void RunDirectory::write_plan(const CompiledStep& step) const {
  write_atomically(path_ / "plan.json", to_json(step).dump(1) + "\n");
}

}  // namespace tandem
