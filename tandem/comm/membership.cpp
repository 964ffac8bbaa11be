#include "tandem/comm/membership.h"

#include <algorithm>

namespace tandem {

std::string Membership::end(const std::string& reason) {
  if (!ended()) settle(agree(reason));
  return this->reason();
}

std::string Membership::end_late(const std::string& who) {
  const std::string silent = silent_ranks();
  return end(silent.empty() ? who + " was there, but did not go on in time" : silent);
}

std::string Membership::reason() const {
  std::lock_guard lock(mutex_);
  return reason_;
}

void Membership::settle(const std::string& reason) {
  std::lock_guard lock(mutex_);
  if (ended_) return;
  reason_ = reason;
  ended_.store(true, std::memory_order_release);
  for (Waiter* waiter : waiters_) waiter->wake(reason);
}

void Membership::enroll(Waiter* waiter) {
  std::lock_guard lock(mutex_);
  waiters_.push_back(waiter);
}

void Membership::retire(Waiter* waiter) {
  std::lock_guard lock(mutex_);
  std::erase(waiters_, waiter);
}

}  // namespace tandem
