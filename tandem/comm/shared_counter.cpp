#include "tandem/comm/shared_counter.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace tandem {
namespace {

// Not the "private" kind: the word may be mapped at different addresses by different processes.
void futex(std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* timeout) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), operation, value, timeout, nullptr, 0);
}

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

// Either the sleeper sees the new value before it sleeps, or this side sees the sleeper: both do a
// sequentially consistent write, then a read of what the other wrote.
void SharedCounter::publish(uint32_t next) {
  value.store(next, std::memory_order_seq_cst);
  if (sleepers.load(std::memory_order_seq_cst) != 0) wake_all();
}

void SharedCounter::wake_all() { futex(value, FUTEX_WAKE, INT_MAX, nullptr); }

bool SharedCounter::spin(uint32_t target, int microseconds) const {
  if (reached(target)) return true;
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(microseconds);
  do {
    for (int i = 0; i < 32; ++i) {
      if (reached(target)) return true;
      relax();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

bool SharedCounter::sleep(uint32_t target, std::chrono::milliseconds limit) {
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  const uint32_t seen = value.load(std::memory_order_seq_cst);
  if (static_cast<int32_t>(seen - target) < 0) {
    const timespec timeout{limit.count() / 1000, limit.count() % 1000 * 1000000};
    futex(value, FUTEX_WAIT, seen, &timeout);
  }
  sleepers.fetch_sub(1, std::memory_order_seq_cst);
  return reached(target);
}

}  // namespace tandem
