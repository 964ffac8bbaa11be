// runs/<name>: where a run keeps what it writes.
#pragma once

#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "tandem/compile/executable.h"
#include "tandem/config/config.h"
#include "tandem/store/lease.h"

namespace tandem {

// What --resume-from-checkpoint said.
struct ResumeFrom {
  enum class Kind { Latest, None, Path } kind = Kind::Latest;
  std::filesystem::path path;
};
ResumeFrom parse_resume(const std::string& text);

// Keeps others from training in a run directory while this process does. Released when it ends, however it
// ends; where the file system has no locks, by a file that others take over then (store/lease.h).
class RunLock {
 public:
  RunLock() = default;  // of nothing
  ~RunLock();
  RunLock(RunLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)), lease_(std::move(other.lease_)) {}
  RunLock& operator=(RunLock&&) = delete;
  // Instead of what it held before. A directory that is not there yet is not locked. Throws ConfigError where
  // another process has it, for `patience_s` and longer.
  void take(const std::filesystem::path& directory, double patience_s = 0);

 private:
  int fd_ = -1;
  std::unique_ptr<Lease> lease_;
};

// Throws ConfigError where a run may not write there: a file, a directory with files and no run, or one with
// a config.yaml that no run has written. They are somebody's, to be neither moved nor mixed with a run's.
void check_run_directory(const std::filesystem::path& path);

class RunDirectory {
 public:
  // Starting over (Kind::None) moves an earlier run of that name aside, to <dir>.1, .2, ...: nothing is lost.
  RunDirectory(std::filesystem::path path, const ResumeFrom& resume);

  explicit RunDirectory(std::filesystem::path path);  // one that another rank has made

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }
  const std::filesystem::path& moved_to() const { return moved_to_; }  // empty if nothing was moved

  // What a process left that was killed while it wrote one of these files. Returns those that stay.
  std::vector<std::filesystem::path> remove_leftovers() const;

  // With a comment for each time that a resume has changed it; `changed` is this one's, or empty.
  void write_config(const Config& config, const std::string& changed) const;
  void write_plan(const CompiledStep& step) const;

 private:
  std::filesystem::path path_;
  std::filesystem::path moved_to_;
};

}  // namespace tandem
