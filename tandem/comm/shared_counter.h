// A counter in memory that several threads or processes map, which one of them advances and others wait for.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace tandem {

struct alignas(64) SharedCounter {
  std::atomic<uint32_t> value{0};
  std::atomic<uint32_t> sleepers{0};

  // Counts wrap around; `target` is never more than half the range away.
  bool reached(uint32_t target) const {
    return static_cast<int32_t>(value.load(std::memory_order_acquire) - target) >= 0;
  }
  void publish(uint32_t next);                         // stores it and wakes those who sleep
  void wake_all();                                     // they look again, though the value is the same
  bool spin(uint32_t target, int microseconds) const;  // whether it was reached
  // Sleeps until the value changes, wake_all or the time is over; returns whether target was reached.
  bool sleep(uint32_t target, std::chrono::milliseconds limit);
};
static_assert(sizeof(SharedCounter) == 64 && std::atomic<uint32_t>::is_always_lock_free);

}  // namespace tandem
