#include "tandem/base/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

namespace tandem {

void open_standard_streams() {
  // open() gives the lowest number that is free: the closed ones come first, in order. Without /dev/null
  // there is nothing to put in their place.
  int fd = ::open("/dev/null", O_RDWR);
  while (fd >= 0 && fd <= STDERR_FILENO) fd = ::open("/dev/null", O_RDWR);
  if (fd > STDERR_FILENO) ::close(fd);
}

}  // namespace tandem
