// Programs that leave nothing behind. Each runs in a process group of its own, and a keeper, one small
// process beside this one, ends all groups when this one dies, however that happens. They read nothing (stdin
// is /dev/null); what they print goes into files.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tandem::pipeline {

struct ProcessSetup {
  std::vector<std::string> command;
  std::vector<std::string> environment;  // on top of this process's: "name=value"
  std::filesystem::path folder;          // where it runs
  int out = -1, err = -1;                // open files
  int inherited = -1;                    // stays open in it: a lock
};

class Processes {
 public:
  // At most so many at a time. What is open now stays open in the keeper, until the last group is ended.
  explicit Processes(size_t most);
  ~Processes();
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  // Its process, which is its group's number. Of the main thread. `mask`: the signals that the program has
  // blocked. One that cannot be run says so in `err` and ends with 127.
  pid_t start(const ProcessSetup& setup, const sigset_t& mask);

  // The exit code if it has ended (128 + signal where one ended it); then nothing of its group is left.
  std::optional<int> take_ended(pid_t pid);

 private:
  std::span<volatile pid_t> groups_;  // those that run, shared with the keeper; 0: a free place
  pid_t keeper_ = 0;
};

void signal_group(pid_t pid, int signal);

// "exit code 3", "killed (SIGKILL)"
std::string describe_exit(int code);

}  // namespace tandem::pipeline
