#include "tandem/base/thread_pool.h"

#include <sched.h>

#include <atomic>
#include <system_error>
#include <thread>
#include <vector>

#include "tandem/base/error.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tandem {
namespace {

// Kernels follow one another within microseconds, so a short spin usually saves a futex call; past it
// the thread sleeps, so that idle pools cost nothing and oversubscribed ones still make progress.
constexpr int kSpins = 4000;
thread_local int tls_worker = -1;  // the worker this thread is inside a task of, or -1

void spin_then_wait(const std::atomic<uint32_t>& value, uint32_t old) {
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
#if defined(__x86_64__)
    _mm_pause();
#endif
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

class ThreadPool::Team {
 public:
  explicit Team(int num_threads);
  ~Team() { shut_down(); }
  void run(int64_t num_tasks, Invoke invoke, void* context);

 private:
  void shut_down();
  void work(int worker);
  void drain(uint32_t loop, int worker);

  std::vector<std::jthread> threads_;

  // The loop under way. A thread claims a task by moving ticket_ on, which names the loop (upper half) and
  // its next task (lower half): a thread that wakes late finds another loop's ticket and touches nothing. The
  // caller waits for tasks, not for threads, so that one that is slow to wake holds nobody up.
  Invoke invoke_ = nullptr;
  void* context_ = nullptr;
  std::atomic<int64_t> num_tasks_{0};
  alignas(64) std::atomic<uint64_t> ticket_{0};
  alignas(64) std::atomic<uint32_t> loop_{0};        // how many loops there were: what idle threads wait on
  alignas(64) std::atomic<uint32_t> unfinished_{0};  // tasks of this loop
  std::atomic<bool> stop_{false};
};

int num_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return CPU_COUNT(&set);
}

ThreadPool::ThreadPool(int num_threads)
    : num_threads_(num_threads > 0 ? num_threads : num_cores()),
      team_(std::make_unique<Team>(num_threads_)) {}

ThreadPool::~ThreadPool() = default;

void ThreadPool::run(int64_t num_tasks, Invoke invoke, void* context) {
  if (tls_worker < 0 && num_threads_ > 1 && num_tasks > 1) return team_->run(num_tasks, invoke, context);
  const int outer = tls_worker;
  if (tls_worker < 0) tls_worker = 0;
  for (int64_t task = 0; task < num_tasks; ++task) invoke(context, task, tls_worker);
  tls_worker = outer;
}

ThreadPool::Team::Team(int num_threads) {
  try {
    for (int worker = 1; worker < num_threads; ++worker) {
      threads_.emplace_back([this, worker] { work(worker); });
    }
  } catch (const std::system_error& error) {
    shut_down();
    throw DeviceError("threads: cannot start {} threads: {}; ask for fewer", num_threads, error.what());
  }
}

void ThreadPool::Team::shut_down() {
  stop_.store(true);
  loop_.fetch_add(1, std::memory_order_release);
  loop_.notify_all();
  threads_.clear();  // joins
}

void ThreadPool::Team::run(int64_t num_tasks, Invoke invoke, void* context) {
  // First the ticket is closed, so that a thread still looking at the last loop's cannot claim beyond its end
  // once the number of tasks grows; then the loop is set up; then the ticket is opened.
  const uint32_t loop = loop_.load(std::memory_order_relaxed) + 1;
  const uint64_t first_ticket = static_cast<uint64_t>(loop) << 32;
  ticket_.store(first_ticket | 0xffffffffu, std::memory_order_relaxed);
  num_tasks_.store(num_tasks, std::memory_order_release);
  unfinished_.store(static_cast<uint32_t>(num_tasks), std::memory_order_relaxed);
  invoke_ = invoke;
  context_ = context;
  ticket_.store(first_ticket, std::memory_order_release);
  loop_.store(loop, std::memory_order_release);
  loop_.notify_all();
  drain(loop, 0);
  for (uint32_t left = unfinished_.load(std::memory_order_acquire); left != 0;
       left = unfinished_.load(std::memory_order_acquire)) {
    spin_then_wait(unfinished_, left);
  }
}

void ThreadPool::Team::drain(uint32_t loop, int worker) {
  tls_worker = worker;
  uint64_t ticket = ticket_.load(std::memory_order_acquire);
  while (ticket >> 32 == loop) {
    const auto task = static_cast<int64_t>(ticket & 0xffffffffu);
    // Read before the claim: if it is the next loop's number, that loop's ticket is closed or open, and the
    // claim fails.
    if (task >= num_tasks_.load(std::memory_order_acquire)) break;
    if (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel,
                                       std::memory_order_acquire))
      continue;
    invoke_(context_, task, worker);
    if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished_.notify_one();
    ticket = ticket_.load(std::memory_order_acquire);
  }
  tls_worker = -1;
}

void ThreadPool::Team::work(int worker) {
  uint32_t seen = 0;
  while (true) {
    spin_then_wait(loop_, seen);
    const uint32_t now = loop_.load(std::memory_order_acquire);
    if (now == seen) continue;
    seen = now;
    if (stop_.load()) return;
    drain(now, worker);
  }
}

}  // namespace tandem
