// Preloaded into a rank (LD_PRELOAD), it counts the calls that concern files under one directory and makes
// the N-th of them go wrong, so that a fault can be put at every place there is (tandem chaos, and the tests'
// faults.py); or it hurts the rank's connections. The environment:
//   TANDEM_FAULT_DIR   absolute path: calls for this directory and what is in it count
//   TANDEM_FAULT_RANK  only in processes with this RANK; "-": without one
//   TANDEM_FAULT_AT    N, from 1; absent or 0: nothing goes wrong
//   TANDEM_FAULT_KIND  what happens to it:
//     eio, enospc      it fails with that error, and nothing is done
//     lost             it is done, and says EIO all the same (a server that went away before it answered)
//     short            a write does half of its bytes; other calls are left alone
//     kill, kill-after the process dies by SIGKILL before or after it
//     full             it and every later call that needs space fail with ENOSPC
//     dead             it and every later call fail with EIO
//   TANDEM_FAULT_LIKE  a pattern: only calls count whose line "call path" or "call path -> path" matches it
//   TANDEM_FAULT_LOG   a file, to whose name the RANK is added: every call that counts gets a line
//                      "N call path", done or not, in every process
//   TANDEM_FAULT_HOLD  a pattern: the K-th call in a process that matches it waits before anything else,
//                      from the moment in which <log>.RANK.held-K appears until there is a <log>.RANK.go-K
//   TANDEM_FAULT_PLAIN 1: no rename that exchanges or refuses to replace (EINVAL), as on NFS
//   TANDEM_FAULT_NET   of a first attempt's rank, once TANDEM_FAULT_NET_MS have passed since its start:
//     cut              the connection that it next sends through is closed
//     slow             for three seconds every send waits 5 ms
//     stall            the next send waits 20 s
//                      a file <log>.RANK.net says that it has happened
// System calls are made directly: a call that this library makes never comes back to it.
#include <dlfcn.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <linux/fs.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

namespace {

enum class Fault { None, Eio, Enospc, Lost, Short, Kill, KillAfter, Full, Dead };

struct Settings {
  bool faulty = false;  // this is the rank
  std::string directory;
  std::string like, hold;  // patterns
  std::string log;
  bool plain = false;
  long at = 0;
  Fault fault = Fault::None;
};

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

Fault parse_fault(std::string_view text) {
  constexpr std::pair<std::string_view, Fault> kNames[] = {
      {"eio", Fault::Eio},   {"enospc", Fault::Enospc},        {"lost", Fault::Lost}, {"short", Fault::Short},
      {"kill", Fault::Kill}, {"kill-after", Fault::KillAfter}, {"full", Fault::Full}, {"dead", Fault::Dead}};
  for (const auto& [name, fault] : kNames) {
    if (text == name) return fault;
  }
  return Fault::None;
}

const Settings& settings() {
  static const Settings kSettings = [] {
    Settings made;
    const std::string rank(variable("RANK").empty() ? "-" : variable("RANK"));
    made.directory = variable("TANDEM_FAULT_DIR");
    made.like = variable("TANDEM_FAULT_LIKE");
    made.hold = variable("TANDEM_FAULT_HOLD");
    made.plain = variable("TANDEM_FAULT_PLAIN") == "1";
    made.log = variable("TANDEM_FAULT_LOG");
    if (!made.log.empty()) made.log += "." + rank;
    made.at = std::atol(std::string(variable("TANDEM_FAULT_AT")).c_str());
    made.fault = parse_fault(variable("TANDEM_FAULT_KIND"));
    made.faulty = made.at > 0 && rank == variable("TANDEM_FAULT_RANK");
    return made;
  }();
  return kSettings;
}

std::string link_target(const std::string& link) {
  char buffer[PATH_MAX];
  const ssize_t size = ::readlink(link.c_str(), buffer, sizeof(buffer));
  return size > 0 ? std::string(buffer, static_cast<size_t>(size)) : std::string();
}

std::string path_of(int fd) { return link_target("/proc/self/fd/" + std::to_string(fd)); }

std::string path_at(int directory, const char* path) {
  if (path == nullptr || path[0] == '/') return path != nullptr ? path : "";
  const std::string base = directory == AT_FDCWD ? link_target("/proc/self/cwd") : path_of(directory);
  return base + "/" + path;
}

void append(const std::string& path, const std::string& line) {
  const int fd = static_cast<int>(
      ::syscall(SYS_openat, AT_FDCWD, path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (fd < 0) return;
  ::syscall(SYS_write, fd, line.data(), line.size());
  ::syscall(SYS_close, fd);
}

void hold(const std::string& line) {
  static std::atomic<int> held{0};
  const Settings& with = settings();
  if (with.hold.empty() || ::fnmatch(with.hold.c_str(), line.c_str(), 0) != 0) return;
  const std::string number = std::to_string(++held);
  append(with.log + ".held-" + number, line);
  while (::access((with.log + ".go-" + number).c_str(), F_OK) != 0) ::usleep(1000);
}

// What becomes of a call.
struct Verdict {
  int error = 0;            // fails with it
  bool do_it = true;        // first, nevertheless
  bool shortly = false;     // half of the bytes
  bool kill_after = false;  // once it is done
};

std::atomic<long> g_count{0};

[[noreturn]] void die() {
  ::syscall(SYS_kill, ::getpid(), SIGKILL);
  for (;;) ::pause();
}

Verdict judge(const char* call, const std::string& path, bool is_write, bool needs_space) {
  const Settings& with = settings();
  const std::string& under = with.directory;
  if (under.empty()) return {};
  if (!path.starts_with(under) || (path.size() > under.size() && path[under.size()] != '/')) return {};
  const std::string line = std::string(call) + " " + path;
  hold(line);
  if (!with.like.empty() && ::fnmatch(with.like.c_str(), line.c_str(), 0) != 0) return {};
  const long number = ++g_count;
  if (!with.log.empty()) append(with.log, std::to_string(number) + " " + line + "\n");
  if (!with.faulty || number < with.at) return {};
  if (with.fault == Fault::Full) return {needs_space ? ENOSPC : 0, !needs_space};
  if (with.fault == Fault::Dead) return {EIO, false};
  if (number > with.at) return {};
  switch (with.fault) {
    case Fault::Eio: return {EIO, false};
    case Fault::Enospc: return {ENOSPC, false};
    case Fault::Lost: return {EIO, true};
    case Fault::Short: return {0, true, is_write};
    case Fault::Kill: die();
    case Fault::KillAfter: return {0, true, false, true};
    default: return {};
  }
}

template <typename Call>
long carry_out(const Verdict& verdict, Call&& call) {
  const long result = verdict.do_it ? call() : -1;
  if (verdict.kill_after) die();
  if (verdict.error == 0) return result;
  errno = verdict.error;
  return -1;
}

size_t bytes_of(const Verdict& verdict, size_t bytes) { return verdict.shortly ? (bytes + 1) / 2 : bytes; }

int open_at(int directory, const char* path, int flags, mode_t mode) {
  const Verdict verdict = judge("open", path_at(directory, path), false, (flags & O_CREAT) != 0);
  return static_cast<int>(carry_out(verdict, [&] {
    const long fd = ::syscall(SYS_openat, directory, path, flags, mode);
    if (fd >= 0 && verdict.error != 0) ::syscall(SYS_close, fd);  // nobody will
    return fd;
  }));
}

template <typename Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

mode_t mode_argument(int flags, va_list& arguments) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? static_cast<mode_t>(va_arg(arguments, int)) : 0;
}

int move(const char* call, int from_dir, const char* from, int to_dir, const char* to, unsigned flags) {
  const std::string target = path_at(to_dir, to);
  const Verdict verdict = judge(call, path_at(from_dir, from) + " -> " + target, false, false);
  return static_cast<int>(carry_out(verdict, [&]() -> long {
    if (!settings().plain || flags == 0) return ::syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
    errno = EINVAL;
    return -1;
  }));
}

std::FILE* open_stream(const char* path, const char* mode, const char* name) {
  const bool creates = mode[0] != 'r';
  const Verdict verdict = judge("open", path_at(AT_FDCWD, path), false, creates);
  if (verdict.error != 0) {
    errno = verdict.error;
    return nullptr;
  }
  std::FILE* const file = next<std::FILE* (*)(const char*, const char*)>(name)(path, mode);
  if (verdict.kill_after) die();
  return file;
}

double now_s() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// As of the library's loading, which is the process's start.
struct Network {
  double from_s = now_s() + 1e-3 * std::atof(std::string(variable("TANDEM_FAULT_NET_MS")).c_str());
  std::string kind{variable("TANDEM_FAULT_NET")};
  bool faulty = !kind.empty() && variable("RANK") == variable("TANDEM_FAULT_RANK") &&
                std::atoi(std::string(variable("TORCHELASTIC_RESTART_COUNT")).c_str()) == 0;
};
const Network g_network;

// Whether the send is to fail.
bool hurt_send(int fd) {
  static std::atomic<bool> begun{false};
  if (!g_network.faulty || now_s() < g_network.from_s) return false;
  int domain = 0;
  socklen_t size = sizeof(domain);
  if (::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0) return false;
  if (domain != AF_INET && domain != AF_INET6) return false;
  const bool first = !begun.exchange(true);
  if (first && !settings().log.empty()) append(settings().log + ".net", g_network.kind + "\n");
  if (g_network.kind == "slow" && now_s() < g_network.from_s + 3) ::usleep(5000);
  if (g_network.kind == "stall" && first) ::usleep(20000000);
  if (g_network.kind != "cut" || !first) return false;
  ::shutdown(fd, SHUT_RDWR);
  errno = ECONNRESET;
  return true;
}

}  // namespace

extern "C" {

ssize_t send(int fd, const void* data, size_t bytes, int flags) {
  return hurt_send(fd) ? -1 : ::syscall(SYS_sendto, fd, data, bytes, flags, nullptr, 0);
}

ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  return hurt_send(fd) ? -1 : ::syscall(SYS_sendmsg, fd, message, flags);
}

ssize_t write(int fd, const void* data, size_t bytes) {
  const Verdict verdict = judge("write", path_of(fd), true, true);
  return carry_out(verdict, [&] { return ::syscall(SYS_write, fd, data, bytes_of(verdict, bytes)); });
}

ssize_t pwrite64(int fd, const void* data, size_t bytes, off64_t offset) {
  const Verdict verdict = judge("write", path_of(fd), true, true);
  return carry_out(verdict,
                   [&] { return ::syscall(SYS_pwrite64, fd, data, bytes_of(verdict, bytes), offset); });
}

ssize_t pwrite(int fd, const void* data, size_t bytes, off_t offset) {
  return pwrite64(fd, data, bytes, offset);
}

ssize_t writev(int fd, const iovec* parts, int count) {
  const Verdict verdict = judge("write", path_of(fd), true, true);
  return carry_out(verdict, [&]() -> long {
    if (!verdict.shortly) return ::syscall(SYS_writev, fd, parts, count);
    return ::syscall(SYS_write, fd, parts[0].iov_base, bytes_of(verdict, parts[0].iov_len));
  });
}

int fsync(int fd) {
  const Verdict verdict = judge("fsync", path_of(fd), false, false);
  return static_cast<int>(carry_out(verdict, [&] { return ::syscall(SYS_fsync, fd); }));
}

int fdatasync(int fd) {
  const Verdict verdict = judge("fsync", path_of(fd), false, false);
  return static_cast<int>(carry_out(verdict, [&] { return ::syscall(SYS_fdatasync, fd); }));
}

int truncate64(const char* path, off64_t size) {
  const Verdict verdict = judge("truncate", path_at(AT_FDCWD, path), false, false);
  return static_cast<int>(carry_out(verdict, [&] { return ::syscall(SYS_truncate, path, size); }));
}

int truncate(const char* path, off_t size) { return truncate64(path, size); }

int ftruncate64(int fd, off64_t size) {
  const Verdict verdict = judge("truncate", path_of(fd), false, false);
  return static_cast<int>(carry_out(verdict, [&] { return ::syscall(SYS_ftruncate, fd, size); }));
}

int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

int rename(const char* from, const char* to) { return move("rename", AT_FDCWD, from, AT_FDCWD, to, 0); }

int renameat(int from_dir, const char* from, int to_dir, const char* to) {
  return move("rename", from_dir, from, to_dir, to, 0);
}

int renameat2(int from_dir, const char* from, int to_dir, const char* to, unsigned flags) {
  return move("rename", from_dir, from, to_dir, to, flags);
}

int unlinkat(int directory, const char* path, int flags) {
  const Verdict verdict = judge("unlink", path_at(directory, path), false, false);
  return static_cast<int>(
      carry_out(verdict, [&] { return ::syscall(SYS_unlinkat, directory, path, flags); }));
}

int unlink(const char* path) { return unlinkat(AT_FDCWD, path, 0); }

int rmdir(const char* path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int remove(const char* path) {
  const Verdict verdict = judge("unlink", path_at(AT_FDCWD, path), false, false);
  return static_cast<int>(carry_out(verdict, [&] {
    const long result = ::syscall(SYS_unlinkat, AT_FDCWD, path, 0);
    return result == 0 || errno != EISDIR ? result : ::syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR);
  }));
}

int mkdirat(int directory, const char* path, mode_t mode) {
  const Verdict verdict = judge("mkdir", path_at(directory, path), false, true);
  return static_cast<int>(carry_out(verdict, [&] { return ::syscall(SYS_mkdirat, directory, path, mode); }));
}

int mkdir(const char* path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

int symlinkat(const char* target, int directory, const char* path) {
  const Verdict verdict = judge("symlink", path_at(directory, path), false, true);
  return static_cast<int>(
      carry_out(verdict, [&] { return ::syscall(SYS_symlinkat, target, directory, path); }));
}

int symlink(const char* target, const char* path) { return symlinkat(target, AT_FDCWD, path); }

int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_argument(flags, arguments);
  va_end(arguments);
  return open_at(AT_FDCWD, path, flags, mode);
}

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_argument(flags, arguments);
  va_end(arguments);
  return open_at(AT_FDCWD, path, flags, mode);
}

// The standard library lists directories with it; how often a rank that waits does so is a matter of time.
int openat64(int directory, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_argument(flags, arguments);
  va_end(arguments);
  if ((flags & O_DIRECTORY) != 0)
    return static_cast<int>(::syscall(SYS_openat, directory, path, flags, mode));
  return open_at(directory, path, flags, mode);
}

int openat(int directory, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_argument(flags, arguments);
  va_end(arguments);
  return openat64(directory, path, flags, mode);
}

std::FILE* fopen(const char* path, const char* mode) { return open_stream(path, mode, "fopen"); }
std::FILE* fopen64(const char* path, const char* mode) { return open_stream(path, mode, "fopen64"); }

}  // extern "C"
