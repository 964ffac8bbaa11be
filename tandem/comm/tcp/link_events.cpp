#include "tandem/comm/tcp/link_events.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tandem/base/error.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr uint32_t kWakeKey = ~uint32_t{0};
constexpr int kMaxEvents = 64;

void watch(int epoll, int fd, uint32_t key, uint32_t what) {
  epoll_event event{};
  event.events = what;
  event.data.u32 = key;
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0)
    throw CommError("tcp: cannot watch a connection: {}", std::strerror(errno));
}

// Asks without waiting until there is an answer or `spin` is over, then waits. An interruption counts as
// none.
template <typename Ask>
int ask_then_wait(std::chrono::microseconds spin, milliseconds limit, Ask ask) {
  const auto start = Clock::now();
  do {
    const int count = ask(0);
    if (count > 0) return count;
  } while (Clock::now() - start < spin);
  return std::max(0, ask(static_cast<int>(std::clamp<int64_t>(limit.count(), 0, 1000000))));
}

}  // namespace

LinkEvents::LinkEvents(int spin_us)
    : spin_(spin_us), epoll_(epoll_create1(EPOLL_CLOEXEC)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!epoll_.open() || !wake_.open())
    throw CommError("tcp: cannot watch connections: {}", std::strerror(errno));
  watch(epoll_.fd(), wake_.fd(), kWakeKey, EPOLLIN);
}

void LinkEvents::add(int fd, uint32_t key) {
  watch(epoll_.fd(), fd, key, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
}

bool LinkEvents::wait(milliseconds limit, const std::function<void(uint32_t, bool, bool)>& ready) {
  epoll_event events[kMaxEvents];
  const int count = ask_then_wait(
      spin_, limit, [&](int timeout) { return epoll_wait(epoll_.fd(), events, kMaxEvents, timeout); });
  for (int i = 0; i < count; ++i) {
    if (events[i].data.u32 == kWakeKey) continue;
    constexpr uint32_t kEnd = EPOLLRDHUP | EPOLLHUP | EPOLLERR;
    ready(events[i].data.u32, (events[i].events & (EPOLLIN | kEnd)) != 0,
          (events[i].events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0);
  }
  return count > 0;
}

bool LinkEvents::wait_for(int fd, bool writable, milliseconds limit) const {
  pollfd entries[2] = {{fd, static_cast<short>(writable ? POLLOUT : POLLIN), 0}, {wake_.fd(), POLLIN, 0}};
  return ask_then_wait(spin_, limit, [&](int timeout) { return poll(entries, 2, timeout); }) > 0;
}

void LinkEvents::wake() {
  const uint64_t one = 1;
  if (write(wake_.fd(), &one, sizeof(one)) < 0) return;  // it cannot be full
}

}  // namespace tandem
