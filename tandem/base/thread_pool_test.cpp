#include "tandem/base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace tandem {
namespace {

TEST(ThreadPool, RunsEveryTaskOnceForAnyNumberOfThreads) {
  for (int threads : {1, 2, 4, 7}) {
    ThreadPool pool(threads);
    for (int64_t tasks : {0, 1, 2, 3, 100, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<size_t>(tasks));
      std::atomic<bool> worker_in_range = true;
      pool.parallel_for(tasks, [&](int64_t task, int worker) {
        ++runs[static_cast<size_t>(task)];
        if (worker < 0 || worker >= threads) worker_in_range = false;
      });
      for (const auto& count : runs) ASSERT_EQ(count, 1);
      EXPECT_TRUE(worker_in_range);
    }
  }
}

TEST(ThreadPool, NoTwoTasksOfOneWorkerRunAtTheSameTime) {
  ThreadPool pool(4);
  std::vector<std::atomic<int>> inside(4);
  std::atomic<bool> clash = false;
  pool.parallel_for(2000, [&](int64_t, int worker) {
    if (++inside[static_cast<size_t>(worker)] != 1) clash = true;
    --inside[static_cast<size_t>(worker)];
  });
  EXPECT_FALSE(clash);
}

TEST(ThreadPool, ALoopInsideATaskRunsInline) {
  ThreadPool pool(3);
  std::atomic<int> total = 0;
  pool.parallel_for(10, [&](int64_t, int outer) {
    pool.parallel_for(5, [&](int64_t, int inner) { total += inner == outer ? 1 : 100; });
  });
  EXPECT_EQ(total, 50);
}

TEST(ThreadPool, ManyShortLoopsInARowComplete) {
  ThreadPool pool(4);
  std::atomic<int64_t> total = 0;
  for (int i = 0; i < 2000; ++i) pool.parallel_for(4, [&](int64_t task, int) { total += task; });
  EXPECT_EQ(total, 2000 * 6);
}

TEST(ThreadPool, LoopsOfManyLengthsInARowRunEachTaskOnce) {
  // A thread that is late for a short loop must not take a task of the longer one that follows.
  ThreadPool pool(4);
  std::vector<std::atomic<int>> runs(64);
  for (int64_t loop = 0; loop < 60000; ++loop) {
    const int64_t tasks = 2 + loop * 7 % 60;
    pool.parallel_for(tasks, [&](int64_t task, int) { ++runs[static_cast<size_t>(task)]; });
    for (int64_t task = 0; task < 64; ++task) {
      ASSERT_EQ(runs[static_cast<size_t>(task)].exchange(0), task < tasks ? 1 : 0)
          << "loop " << loop << ", task " << task;
    }
  }
}

}  // namespace
}  // namespace tandem
