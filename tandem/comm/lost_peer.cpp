#include "tandem/comm/lost_peer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>

namespace tandem {

void tell_lost_peer() {
  const char* path = std::getenv(kLostPeerVariable);
  if (path == nullptr || *path == '\0') return;
  const int fd = ::open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (fd >= 0) ::close(fd);
}

}  // namespace tandem
