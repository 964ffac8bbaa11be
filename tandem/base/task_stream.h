// A thread that runs tasks in the order they were submitted, and a ticket for each: how collectives and
// copies run beside computation. A task that throws ends the stream: every ticket from it on rethrows.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace tandem {

class TaskStream {
 public:
  using Ticket = int64_t;  // counts from 1

  TaskStream();
  ~TaskStream();  // runs what is queued, unless a task has thrown
  TaskStream(const TaskStream&) = delete;
  TaskStream& operator=(const TaskStream&) = delete;

  Ticket submit(std::function<void()> task);
  void wait(Ticket ticket);  // until that task has run; rethrows what it, or one before it, threw
  void wait_all();

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable changed_, finished_;
  std::deque<std::function<void()>> tasks_;
  Ticket submitted_ = 0, done_ = 0;
  std::exception_ptr failure_;
  bool stop_ = false;
  std::jthread thread_;
};

}  // namespace tandem
