#include "tandem/pipeline/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "tandem/base/error.h"

extern char** environ;

namespace tandem::pipeline {
namespace {

constexpr int kRunnerDied = SIGUSR1;  // what the kernel tells the keeper

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

std::vector<std::string> whole_environment(const std::vector<std::string>& more) {
  std::vector<std::string> all = more;
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string_view variable(*each);
    const std::string_view name = variable.substr(0, variable.find('=') + 1);
    bool replaced = false;
    for (const std::string& other : more) replaced = replaced || other.starts_with(name);
    if (!replaced) all.emplace_back(variable);
  }
  return all;
}

void say(std::string_view text) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

struct Start {
  const ProcessSetup& setup;
  char* const* command;
  char* const* environment;
  volatile pid_t* group;
  pid_t runner;
  const sigset_t& mask;
};

// Between vfork and exec, with this process's memory: it calls the system, and writes its own number alone.
[[noreturn]] void become(const Start& start) {
  const ProcessSetup& setup = start.setup;
  ::setpgid(0, 0);
  *start.group = ::getpid();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != start.runner) ::_exit(1);  // it died before the line above
  const int in = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::dup2(in, STDIN_FILENO);
  ::dup2(setup.out, STDOUT_FILENO);
  ::dup2(setup.err, STDERR_FILENO);
  if (setup.inherited >= 0) ::fcntl(setup.inherited, F_SETFD, 0);
  ::signal(SIGPIPE, SIG_DFL);
  ::signal(SIGINT, SIG_DFL);
  ::sigprocmask(SIG_SETMASK, &start.mask, nullptr);
  if (::chdir(setup.folder.c_str()) == 0) ::execvpe(start.command[0], start.command, start.environment);
  const char* reason = ::strerrordesc_np(errno);
  say(start.command[0]);
  say(": cannot be run: ");
  say(reason != nullptr ? reason : "unknown error");
  say("\n");
  ::_exit(127);
}

// Without a copy of this program's tables of memory, which would take longer than a short program.
[[gnu::noinline]] pid_t fork_into(const Start& start) {
  const pid_t pid = ::vfork();
  if (pid == 0) become(start);
  return pid;
}

// Waits for the runner's end. In a group of its own, which no signal to the runner's reaches.
[[noreturn]] void keep(std::span<volatile pid_t> groups, pid_t runner) {
  ::setpgid(0, 0);
  sigset_t all, awaited;
  sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  sigemptyset(&awaited);
  sigaddset(&awaited, kRunnerDied);
  ::prctl(PR_SET_PDEATHSIG, kRunnerDied);
  while (::getppid() == runner) ::sigwaitinfo(&awaited, nullptr);
  for (volatile pid_t& group : groups) {
    if (group > 0) ::kill(-group, SIGKILL);
  }
  ::_exit(0);
}

}  // namespace

Processes::Processes(size_t most) {
  void* place =
      ::mmap(nullptr, most * sizeof(pid_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (place == MAP_FAILED) throw IoError("memory for {} processes: {}", most, std::strerror(errno));
  groups_ = {static_cast<volatile pid_t*>(place), most};
  const pid_t runner = ::getpid();
  keeper_ = ::fork();
  if (keeper_ == 0) keep(groups_, runner);
  if (keeper_ < 0) {
    ::munmap(place, groups_.size_bytes());
    throw IoError("a process cannot be started: {}", std::strerror(errno));
  }
}

Processes::~Processes() {
  for (volatile pid_t& group : groups_) {
    if (group > 0) ::kill(-group, SIGKILL);
  }
  ::kill(keeper_, SIGKILL);
  while (::waitpid(keeper_, nullptr, 0) < 0 && errno == EINTR) {
  }
  ::munmap(const_cast<pid_t*>(groups_.data()), groups_.size_bytes());
}

pid_t Processes::start(const ProcessSetup& setup, const sigset_t& mask) {
  const std::vector<std::string> variables = whole_environment(setup.environment);
  const std::vector<char*> command = pointers(setup.command), environment = pointers(variables);
  const auto place = std::find(groups_.begin(), groups_.end(), 0);
  TANDEM_CHECK(place != groups_.end());
  const pid_t pid = fork_into({setup, command.data(), environment.data(), &*place, ::getpid(), mask});
  if (pid < 0) throw IoError("{}: cannot be started: {}", setup.command.front(), std::strerror(errno));
  return pid;
}

std::optional<int> Processes::take_ended(pid_t pid) {
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
    return std::nullopt;
  ::kill(-pid, SIGKILL);  // while the number is still its own
  for (volatile pid_t& group : groups_) {
    if (group == pid) group = 0;
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void signal_group(pid_t pid, int signal) { ::kill(-pid, signal); }

std::string describe_exit(int code) {
  if (code == 127) return "exit code 127 (the program cannot be run)";
  const char* name = code > 128 && code < 128 + NSIG ? ::sigabbrev_np(code - 128) : nullptr;
  return name != nullptr ? fmt::format("killed (SIG{})", name) : fmt::format("exit code {}", code);
}

}  // namespace tandem::pipeline
