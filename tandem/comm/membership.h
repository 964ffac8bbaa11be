// How the communicators of one world end together: the first reason that anybody gives wins, and every call
// that waits anywhere in the world throws it. This one is for the threads of a process; KeyStoreMembership
// does the same between processes.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

namespace tandem {

class Membership {
 public:
  // Somebody with calls that may be waiting. wake() makes them look at ended(); it must not block, nor call
  // back.
  class Waiter {
   public:
    virtual void wake(const std::string& reason) = 0;

   protected:
    ~Waiter() = default;
  };

  Membership() = default;
  virtual ~Membership() = default;
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  // Returns the reason that won, which is an earlier one where there is one.
  std::string end(const std::string& reason);
  // Ends it because somebody, waited for by this rank while connecting, did not come: a rank that gives no
  // sign of life is to blame, if there is one, or else `who`.
  std::string end_late(const std::string& who);
  bool ended() const { return ended_.load(std::memory_order_acquire); }
  std::string reason() const;

  // What is known about ranks that show no sign of life, to be added to a timeout's message; else empty.
  virtual std::string silent_ranks() { return {}; }
  // Waits a moment for the reason of a failure that others may be about to tell; empty where none comes.
  virtual std::string awaited_reason() { return ended() ? reason() : std::string(); }

  void enroll(Waiter* waiter);
  void retire(Waiter* waiter);

 protected:
  // Agrees with the other processes on the first reason.
  virtual std::string agree(const std::string& reason) { return reason; }
  void settle(const std::string& reason);  // ends this process's part

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> ended_{false};
  std::string reason_;
  std::vector<Waiter*> waiters_;
};

}  // namespace tandem
