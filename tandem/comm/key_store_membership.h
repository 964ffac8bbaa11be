// Membership among processes: each has a lifeline to the tcp store that rank 0 serves. A rank that dies, or
// that fails for any reason, is known to all at once; one that is stopped or cut off is known by its silence
// when a call's time is over.
#pragma once

#include <atomic>
#include <thread>

#include "tandem/comm/key_store/tcp_key_store.h"
#include "tandem/comm/membership.h"

namespace tandem {

class KeyStoreMembership final : public Membership {
 public:
  // `key` holds the reason for which the world ended, once it has; `names` are those of all ranks.
  KeyStoreMembership(const std::string& host, int port, const Secret& secret, std::string key, int rank,
                     std::vector<std::string> names, std::chrono::milliseconds connect_timeout,
                     const std::function<void()>& while_waiting = {});
  ~KeyStoreMembership() override;  // a farewell

  std::string silent_ranks() override;
  std::string awaited_reason() override;

 private:
  std::string agree(const std::string& reason) override;
  void watch();

  const std::string key_;
  const int rank_;
  const std::vector<std::string> names_;
  TcpKeyStore questions_, lifeline_;
  std::atomic<bool> stop_{false};
  std::jthread thread_;  // last: it uses the others
};

}  // namespace tandem
