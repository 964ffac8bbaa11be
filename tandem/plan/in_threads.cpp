#include "tandem/plan/in_threads.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace tandem::plan {

void for_each_in_threads(size_t begin, size_t end, int threads, const std::function<void(size_t)>& do_one) {
  std::atomic<size_t> next = begin;
  std::mutex mutex;
  std::exception_ptr error;
  size_t failed = end;
  const auto work = [&] {
    for (size_t i = next++; i < end; i = next++) {
      try {
        do_one(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (i >= failed) continue;
        failed = i;
        error = std::current_exception();
        next = end;
      }
    }
  };
  std::vector<std::thread> others;
  const size_t wanted =
      std::min<size_t>(end - std::min(begin, end), static_cast<size_t>(std::max(threads, 1)));
  for (size_t i = 1; i < wanted; ++i) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace tandem::plan
