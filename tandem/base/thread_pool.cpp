#include "tandem/base/thread_pool.h"

#include <sched.h>

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

int num_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return CPU_COUNT(&set);
}

ThreadPool::ThreadPool(int num_threads) : num_threads_(num_threads > 0 ? num_threads : num_cores()) {
  for (int worker = 1; worker < num_threads_; ++worker) {
    threads_.emplace_back([this, worker] { work(worker); });
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  threads_.clear();  // joins
}

void ThreadPool::run(int64_t num_tasks, Invoke invoke, void* context) {
  if (tls_worker >= 0 || num_threads_ == 1 || num_tasks <= 1) {
    const int outer = tls_worker;
    if (tls_worker < 0) tls_worker = 0;
    for (int64_t task = 0; task < num_tasks; ++task) invoke(context, task, tls_worker);
    tls_worker = outer;
    return;
  }
  invoke_ = invoke;
  context_ = context;
  num_tasks_ = num_tasks;
  next_task_.store(0, std::memory_order_relaxed);
  busy_.store(static_cast<uint32_t>(num_threads_ - 1), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  drain(0);
  for (uint32_t left = busy_.load(std::memory_order_acquire); left != 0;
       left = busy_.load(std::memory_order_acquire)) {
    spin_then_wait(busy_, left);
  }
}

void ThreadPool::drain(int worker) {
  tls_worker = worker;
  for (int64_t task = next_task_.fetch_add(1, std::memory_order_relaxed); task < num_tasks_;
       task = next_task_.fetch_add(1, std::memory_order_relaxed)) {
    invoke_(context_, task, worker);
  }
  tls_worker = -1;
}

void ThreadPool::work(int worker) {
  uint32_t seen = 0;
  while (true) {
    spin_then_wait(generation_, seen);
    const uint32_t now = generation_.load(std::memory_order_acquire);
    if (now == seen) continue;
    seen = now;
    if (stop_.load()) return;
    drain(worker);
    if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) busy_.notify_one();
  }
}

}  // namespace tandem
