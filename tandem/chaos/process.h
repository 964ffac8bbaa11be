// Programs that a trial starts and hurts.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tandem::chaos {

// Leads a process group of its own and dies with this process, or with this object.
class Process {
 public:
  using Variables = std::vector<std::pair<std::string, std::string>>;
  // What it prints is added to `log`, the variables to its environment. Throws IoError.
  Process(const std::vector<std::string>& words, const std::filesystem::path& log,
          const Variables& variables = {});
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // The exit code (128 + signal where one ended it), or nothing where it still runs after `limit`.
  std::optional<int> wait(std::chrono::milliseconds limit);
  bool is_running() { return !wait(std::chrono::milliseconds(0)); }
  void signal(int number) const;
  void kill_all();  // with everything in its group, and its children's groups; returns when it has ended

  // Its children that are ranks, by rank: processes with a RANK in their environment.
  std::map<int, pid_t> ranks() const;

 private:
  pid_t pid_ = 0;
  std::optional<int> code_;
};

}  // namespace tandem::chaos
