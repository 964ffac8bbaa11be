#include "tandem/launch/child_process.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "tandem/base/error.h"

namespace tandem {
namespace {

// A pipe, or a pseudo terminal that changes no byte.
struct Channel {
  int reader = -1;
  int writer = -1;
};

Channel open_terminal(int like) {
  Channel channel;
  channel.reader = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  char name[128];
  if (channel.reader < 0 || ::grantpt(channel.reader) != 0 || ::unlockpt(channel.reader) != 0 ||
      ::ptsname_r(channel.reader, name, sizeof(name)) != 0 ||
      (channel.writer = ::open(name, O_RDWR | O_NOCTTY | O_CLOEXEC)) < 0) {
    if (channel.reader >= 0) ::close(channel.reader);
    return {};
  }
  termios settings{};
  ::tcgetattr(channel.writer, &settings);
  ::cfmakeraw(&settings);
  ::tcsetattr(channel.writer, TCSANOW, &settings);
  copy_terminal_size(like, channel.writer);
  return channel;
}

Channel open_channel(int terminal) {
  Channel channel;
  if (terminal >= 0) channel = open_terminal(terminal);
  if (channel.reader < 0) {  // also where the system has no pseudo terminal left
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw IoError("pipe for a rank's output: {}", std::strerror(errno));
    channel = {ends[0], ends[1]};
  }
  ::fcntl(channel.reader, F_SETFL, ::fcntl(channel.reader, F_GETFL) | O_NONBLOCK);
  return channel;
}

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (const std::string& text : strings) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

// Between fork and exec: nothing here may allocate. `failed` learns errno where the program cannot be run.
[[noreturn]] void become(char* const* program, char* const* environment, int in, const Channel& out,
                         const Channel& err, pid_t launcher, const sigset_t& signal_mask, int failed) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != launcher) ::_exit(1);  // it died before the line above
  ::dup2(in, STDIN_FILENO);
  ::dup2(out.writer, STDOUT_FILENO);
  ::dup2(err.writer, STDERR_FILENO);
  ::signal(SIGPIPE, SIG_DFL);
  ::signal(SIGINT, SIG_DFL);  // a shell's background job ignores it, and a signal passed on would be lost
  ::sigprocmask(SIG_SETMASK, &signal_mask, nullptr);
  ::execvpe(program[0], program, environment);
  const int error = errno;
  [[maybe_unused]] const ssize_t written = ::write(failed, &error, sizeof(error));
  ::_exit(127);
}

void discard(std::vector<Child>& children) {
  for (Child& child : children) {
    ::kill(-child.pid, SIGKILL);
    ::kill(child.pid, SIGKILL);
    while (::waitpid(child.pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    ::close(child.out);
    ::close(child.err);
  }
  children.clear();
}

}  // namespace

void copy_terminal_size(int from, int to) {
  winsize size{};
  if (::ioctl(from, TIOCGWINSZ, &size) == 0) ::ioctl(to, TIOCSWINSZ, &size);
}

std::vector<Child> start_children(std::span<const ChildSetup> setups, const sigset_t& signal_mask) {
  const pid_t launcher = ::getpid();
  const int in = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  int failed[2];  // exec closes the children's copies, so the end of this pipe means that all run
  if (::pipe2(failed, O_CLOEXEC) != 0) throw IoError("pipe to start ranks: {}", std::strerror(errno));
  std::vector<Child> children;
  int error = 0;
  for (const ChildSetup& setup : setups) {
    const std::vector<char*> program = pointers(setup.program), environment = pointers(setup.environment);
    const Channel out = open_channel(setup.out_terminal), err = open_channel(setup.err_terminal);
    const pid_t pid = ::fork();
    if (pid == 0) become(program.data(), environment.data(), in, out, err, launcher, signal_mask, failed[1]);
    if (pid < 0) error = errno;
    ::close(out.writer);
    ::close(err.writer);
    if (pid < 0) {
      ::close(out.reader);
      ::close(err.reader);
      break;
    }
    children.push_back({pid, out.reader, err.reader});
  }
  ::close(failed[1]);
  ::close(in);
  if (error == 0 && ::read(failed[0], &error, sizeof(error)) != static_cast<ssize_t>(sizeof(error)))
    error = 0;
  ::close(failed[0]);
  if (error != 0) {
    discard(children);
    const std::string& name = setups.front().program.front();
    throw ConfigError("{}: cannot be started: {}; expected a program, a Python file or a tandem subcommand",
                      name, std::strerror(error));
  }
  return children;
}

}  // namespace tandem
