#include "tandem/comm/launch_notes.h"

#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace tandem {
namespace {

char g_interrupted_path[PATH_MAX] = "";

// Only calls that a signal handler may make. The first to write says it: a second signal changes nothing.
void make_file(const char* path, const char* text, size_t size) noexcept {
  if (path == nullptr || *path == '\0') return;
  const int saved = errno;
  const int fd = ::open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (fd >= 0) {
    [[maybe_unused]] const ssize_t written = ::write(fd, text, size);
    ::close(fd);
  }
  errno = saved;
}

}  // namespace

void tell_lost_peer() { make_file(std::getenv(kLostPeerVariable), "", 0); }
void tell_final() { make_file(std::getenv(kFinalVariable), "", 0); }

void prepare_to_tell_interrupted() {
  const char* path = std::getenv(kInterruptedVariable);
  if (path == nullptr || std::strlen(path) >= sizeof(g_interrupted_path)) return;
  std::strcpy(g_interrupted_path, path);
}

void tell_interrupted(int signal) noexcept {
  const char digits[2] = {static_cast<char>('0' + signal / 10 % 10), static_cast<char>('0' + signal % 10)};
  make_file(g_interrupted_path, digits, sizeof(digits));
}

}  // namespace tandem
