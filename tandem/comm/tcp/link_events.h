// Which connections of a group can move bytes. Told once for each change: who was told, or who begins, moves
// bytes until the kernel says that it would block, and waits only then.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "tandem/comm/tcp/tcp_socket.h"

namespace tandem {

class LinkEvents {
 public:
  // `spin_us`: how long to look before sleeping; 0 where ranks outnumber processors.
  explicit LinkEvents(int spin_us);

  void add(int fd, uint32_t key);
  // Calls `ready` for each connection with news, and returns whether there was any within the limit, or
  // whether wake() was called.
  bool wait(std::chrono::milliseconds limit,
            const std::function<void(uint32_t key, bool readable, bool writable)>& ready);
  // The same for one connection that was not added; from several threads at once.
  bool wait_for(int fd, bool writable, std::chrono::milliseconds limit) const;
  void wake();  // from any thread, for good: no wait lasts from then on

 private:
  const std::chrono::microseconds spin_;
  Socket epoll_, wake_;
};

}  // namespace tandem
