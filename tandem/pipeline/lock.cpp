#include "tandem/pipeline/lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/base/file.h"

namespace tandem::pipeline {
namespace {

constexpr const char* kName = "lock";
constexpr auto kWait = std::chrono::seconds(20);  // for steps of a dead runner, which the kernel is ending

pid_t written_in(int fd) {
  char text[32] = {};
  const ssize_t size = ::pread(fd, text, sizeof(text) - 1, 0);
  return size > 0 ? static_cast<pid_t>(std::atoi(text)) : 0;
}

bool is_alive(pid_t pid) { return pid > 0 && (::kill(pid, 0) == 0 || errno == EPERM); }

}  // namespace

StoreLock::StoreLock(const std::filesystem::path& store)
    : file_([&] {
        make_directories(store);
        return ::open((store / kName).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
      }()) {
  if (file_.get() < 0)
    throw IoError("{}: cannot be written: {}", (store / kName).string(), std::strerror(errno));
  const auto deadline = std::chrono::steady_clock::now() + kWait;
  while (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR)
      throw IoError("{}: cannot be locked: {}", (store / kName).string(), std::strerror(errno));
    const pid_t other = written_in(file_.get());
    if (is_alive(other))
      throw IoError("{}: process {} works in it; wait for it, or end it", store.string(), other);
    if (std::chrono::steady_clock::now() > deadline)
      throw IoError("{}: a step of a runner that is gone still runs; end it (`fuser {}`)", store.string(),
                    (store / kName).string());
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const std::string pid = std::to_string(::getpid()) + "\n";
  if (::ftruncate(file_.get(), 0) != 0 ||
      ::pwrite(file_.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size()))
    throw IoError("{}: cannot be written: {}", (store / kName).string(), std::strerror(errno));
}

pid_t runner_of(const std::filesystem::path& store) {
  const Descriptor file(::open((store / kName).c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0 || ::flock(file.get(), LOCK_SH | LOCK_NB) == 0) return 0;
  const pid_t pid = written_in(file.get());
  return is_alive(pid) ? pid : 0;
}

}  // namespace tandem::pipeline
