#include "tandem/cluster/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "tandem/base/error.h"

extern char** environ;

namespace tandem::cluster {
namespace {

class Pipe {
 public:
  explicit Pipe(const std::string& what) {
    if (::pipe2(ends_.data(), O_CLOEXEC) != 0) throw IoError("{}: no pipe: {}", what, std::strerror(errno));
  }
  ~Pipe() {
    close_reader();
    close_writer();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  int reader() const { return ends_[0]; }
  int writer() const { return ends_[1]; }
  void close_reader() { close_end(0); }
  void close_writer() { close_end(1); }

 private:
  void close_end(size_t end) {
    if (ends_[end] >= 0) ::close(ends_[end]);
    ends_[end] = -1;
  }
  std::array<int, 2> ends_{-1, -1};
};

// A program that ends before it has read its input must not end this one.
class IgnoreBrokenPipes {
 public:
  IgnoreBrokenPipes() {
    struct sigaction ignore {};
    ignore.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &ignore, &before_);
  }
  ~IgnoreBrokenPipes() { sigaction(SIGPIPE, &before_, nullptr); }

 private:
  struct sigaction before_ {};
};

pid_t spawn(const std::vector<std::string>& words, const Pipe& in, const Pipe& out, const Pipe& err) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.reader(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out.writer(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err.writer(), STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t restored;
  sigemptyset(&restored);
  sigaddset(&restored, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &restored);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, arguments[0], &actions, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error == ENOENT) throw ConfigError("{}: is not installed here, or not on the PATH", words.front());
  if (error != 0) throw IoError("{}: cannot be started: {}", words.front(), std::strerror(error));
  return pid;
}

// Reads what there is; closes the pipe at its end.
void take(Pipe& pipe, std::string& into) {
  std::array<char, 1 << 16> buffer;
  const ssize_t size = ::read(pipe.reader(), buffer.data(), buffer.size());
  if (size > 0) into.append(buffer.data(), static_cast<size_t>(size));
  if (size == 0 || (size < 0 && errno != EINTR && errno != EAGAIN)) pipe.close_reader();
}

void give(Pipe& pipe, std::string_view& left) {
  const ssize_t size = ::write(pipe.writer(), left.data(), left.size());
  if (size > 0) left.remove_prefix(static_cast<size_t>(size));
  if (left.empty() || (size < 0 && errno != EINTR && errno != EAGAIN)) pipe.close_writer();
}

}  // namespace

Ended run_program(const std::vector<std::string>& words, std::string_view input, double timeout_s) {
  const std::string& name = words.at(0);
  const IgnoreBrokenPipes ignore;
  Pipe in(name), out(name), err(name);
  const pid_t pid = spawn(words, in, out, err);
  in.close_reader();
  out.close_writer();
  err.close_writer();
  ::fcntl(in.writer(), F_SETFL, O_NONBLOCK);
  if (input.empty()) in.close_writer();
  Ended ended;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout_s);
  while (out.reader() >= 0 || err.reader() >= 0) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
      throw IoError("{}: no end after {:g} s; it was killed", name, timeout_s);
    }
    std::array<pollfd, 3> fds{
        {{out.reader(), POLLIN, 0}, {err.reader(), POLLIN, 0}, {in.writer(), POLLOUT, 0}}};
    if (::poll(fds.data(), fds.size(), static_cast<int>(left.count()) + 1) <= 0) continue;
    if (fds[0].revents != 0) take(out, ended.out);
    if (fds[1].revents != 0) take(err, ended.err);
    if (fds[2].revents != 0) give(in, input);
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ended;
}

}  // namespace tandem::cluster
