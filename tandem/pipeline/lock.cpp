#include "tandem/pipeline/lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <sstream>
#include <string>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/system.h"

namespace tandem::pipeline {
namespace {

constexpr const char* kName = "lock";
constexpr auto kWait = std::chrono::seconds(20);  // for steps of a dead runner, which the kernel is ending

struct Holder {
  pid_t pid = 0;
  std::string space, host;  // where the process is; empty: here
};

Holder written_in(int fd) {
  std::array<char, 512> text{};
  const ssize_t size = ::pread(fd, text.data(), text.size() - 1, 0);
  Holder holder;
  std::istringstream(std::string(text.data(), size > 0 ? static_cast<size_t>(size) : 0)) >> holder.pid >>
      holder.space >> holder.host;
  return holder;
}

bool is_elsewhere(const Holder& holder) { return !holder.space.empty() && holder.space != process_space(); }

// On another machine it is the lock alone that tells.
bool is_alive(const Holder& holder) {
  if (holder.pid > 0 && is_elsewhere(holder)) return true;
  return holder.pid > 0 && (::kill(holder.pid, 0) == 0 || errno == EPERM);
}

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
    const Holder other = written_in(file_.get());
    if (is_alive(other))
      throw IoError("{}: process {}{} works in it; wait for it, or end it", store.string(), other.pid,
                    is_elsewhere(other) ? " on " + other.host : "");
    if (std::chrono::steady_clock::now() > deadline)
      throw IoError("{}: a step of a runner that is gone still runs; end it (`fuser {}`)", store.string(),
                    (store / kName).string());
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const std::string space = process_space();
  const std::string own =
      fmt::format("{}{}\n", ::getpid(), space.empty() ? "" : " " + space + " " + hostname());
  if (::ftruncate(file_.get(), 0) != 0 ||
      ::pwrite(file_.get(), own.data(), own.size(), 0) != static_cast<ssize_t>(own.size()))
    throw IoError("{}: cannot be written: {}", (store / kName).string(), std::strerror(errno));
}

pid_t runner_of(const std::filesystem::path& store) {
  const Descriptor file(::open((store / kName).c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0 || ::flock(file.get(), LOCK_SH | LOCK_NB) == 0) return 0;
  const Holder holder = written_in(file.get());
  return is_alive(holder) ? holder.pid : 0;
}

}  // namespace tandem::pipeline
