// A fixed team of threads for data-parallel loops. How a loop is cut into tasks is the caller's choice
// and must depend on shapes only, never on the number of threads: that is what makes results identical
// for any thread count. Which thread runs a task is decided at run time.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace tandem {

class ThreadPool {
 public:
  explicit ThreadPool(int num_threads);  // the calling thread counts as one of them; 0 = all cores
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }

  // Runs fn(task, worker) for task in [0, num_tasks), worker in [0, num_threads()). Returns when all are
  // done. Tasks must not throw. A call from inside a task runs its tasks inline, as that task's worker.
  template <typename Fn>
  void parallel_for(int64_t num_tasks, Fn&& fn) {
    using Callable = std::remove_reference_t<Fn>;
    run(
        num_tasks,
        [](void* context, int64_t task, int worker) { (*static_cast<Callable*>(context))(task, worker); },
        const_cast<void*>(static_cast<const void*>(&fn)));
  }

 private:
  using Invoke = void (*)(void* context, int64_t task, int worker);
  void run(int64_t num_tasks, Invoke invoke, void* context);

  int num_threads_;
  class Team;  // in the source: everything includes this header, and need not read <thread> for it
  std::unique_ptr<Team> team_;
};

int num_cores();  // cores this process may run on

}  // namespace tandem
