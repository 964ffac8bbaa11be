#include "tandem/chaos/process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <csignal>
#include <fstream>
#include <iterator>
#include <thread>

#include "tandem/base/error.h"

namespace tandem::chaos {
namespace {

using Clock = std::chrono::steady_clock;

std::string read_all(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The parent of a process, from /proc/PID/stat: what follows the name in brackets, which may hold anything.
pid_t parent_of(const std::string& stat) {
  const size_t after = stat.rfind(')');
  if (after == std::string::npos || after + 4 >= stat.size()) return 0;
  pid_t parent = 0;
  std::from_chars(stat.data() + after + 4, stat.data() + stat.size(), parent);
  return parent;
}

std::optional<int> rank_in(const std::string& environment) {
  const std::string all = '\0' + environment;
  const std::string name("\0RANK=", 6);
  const size_t at = all.find(name);
  if (at == std::string::npos) return std::nullopt;
  int rank = 0;
  const char* begin = all.data() + at + name.size();
  return std::from_chars(begin, all.data() + all.size(), rank).ec == std::errc() ? std::optional(rank)
                                                                                 : std::nullopt;
}

[[noreturn]] void become(const std::vector<std::string>& words, int log,
                         const Process::Variables& variables) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int nothing = ::open("/dev/null", O_RDONLY);
  ::dup2(nothing, STDIN_FILENO);
  ::dup2(log, STDOUT_FILENO);
  ::dup2(log, STDERR_FILENO);
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  ::_exit(127);
}

}  // namespace

Process::Process(const std::vector<std::string>& words, const std::filesystem::path& log,
                 const Variables& variables) {
  const int fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) throw IoError("{}: cannot be written", log.string());
  pid_ = ::fork();
  if (pid_ == 0) become(words, fd, variables);
  ::close(fd);
  if (pid_ < 0) throw IoError("no process can be started");
  ::setpgid(pid_, pid_);  // as the child does: whoever is first
}

Process::~Process() { kill_all(); }

std::optional<int> Process::wait(std::chrono::milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  while (!code_) {
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) == pid_) {
      code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    } else if (Clock::now() >= deadline) {
      return std::nullopt;
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  return code_;
}

void Process::signal(int number) const {
  if (!code_) ::kill(pid_, number);
}

void Process::kill_all() {
  if (code_) return;
  for (const auto& [rank, pid] : ranks()) ::kill(-pid, SIGKILL);  // each leads a group of its own
  ::kill(-pid_, SIGKILL);
  wait(std::chrono::hours(1));
}

std::map<int, pid_t> Process::ranks() const {
  std::map<int, pid_t> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename().string();
    pid_t pid = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ptr != name.data() + name.size())
      continue;
    if (parent_of(read_all(entry.path() / "stat")) != pid_) continue;
    if (const std::optional<int> rank = rank_in(read_all(entry.path() / "environ"))) found[*rank] = pid;
  }
  return found;
}

}  // namespace tandem::chaos
