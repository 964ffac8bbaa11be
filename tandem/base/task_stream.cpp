#include "tandem/base/task_stream.h"

namespace tandem {

TaskStream::TaskStream() : thread_([this] { work(); }) {}

TaskStream::~TaskStream() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
}

TaskStream::Ticket TaskStream::submit(std::function<void()> task) {
  Ticket ticket;
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    ticket = ++submitted_;
  }
  changed_.notify_one();
  return ticket;
}

void TaskStream::wait(Ticket ticket) {
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [&] { return done_ >= ticket || failure_; });
  if (done_ < ticket) std::rethrow_exception(failure_);
}

void TaskStream::wait_all() {
  Ticket last;
  {
    const std::lock_guard lock(mutex_);
    last = submitted_;
  }
  wait(last);
}

void TaskStream::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || (!tasks_.empty() && !failure_); });
    if (failure_ || tasks_.empty()) return;
    const std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    std::exception_ptr failure;
    try {
      task();
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (failure) {
      failure_ = failure;
    } else {
      ++done_;
    }
    finished_.notify_all();
  }
}

}  // namespace tandem
