#include "tandem/comm/key_store_membership.h"

#include <fmt/ranges.h>

#include "tandem/base/error.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kHeartbeat{250};
constexpr milliseconds kSilence{1500};  // long for a crowded machine, short for a person who waits
constexpr milliseconds kPatience{1000};
constexpr milliseconds kNewsDelay{3000};  // how much later than a closed connection its reason may come

}  // namespace

KeyStoreMembership::KeyStoreMembership(const std::string& host, int port, const Secret& secret,
                                       std::string key, int rank, std::vector<std::string> names,
                                       milliseconds connect_timeout,
                                       const std::function<void()>& while_waiting)
    : key_(std::move(key)),
      rank_(rank),
      names_(std::move(names)),
      questions_(host, port, secret, Serve::No, connect_timeout, kPatience, names_[0], while_waiting),
      lifeline_(host, port, secret, Serve::No, connect_timeout, TcpKeyStore::kPatience, names_[0],
                while_waiting) {
  const std::string& name = names_[static_cast<size_t>(rank)];
  lifeline_.open_lifeline(name, key_, fmt::format("{} is gone; its own output says why", name));
  thread_ = std::jthread([this] { watch(); });
}

KeyStoreMembership::~KeyStoreMembership() {
  stop_ = true;
  lifeline_.say_farewell();
  lifeline_.hang_up();
}

void KeyStoreMembership::watch() {
  std::string reason;
  for (;;) {
    const TcpKeyStore::News news = lifeline_.listen(kHeartbeat, &reason);
    if (stop_ || news == TcpKeyStore::News::ServerEnded) return;
    if (news == TcpKeyStore::News::ServerLost) {
      return settle(
          fmt::format("{} is gone, and the store that it served; its own output says why", names_[0]));
    }
    if (news == TcpKeyStore::News::Value) return settle(reason);
    lifeline_.say_alive();
  }
}

// Where the store is down, its server's end is the watching thread's to tell; this rank says what it saw.
std::string KeyStoreMembership::agree(const std::string& reason) {
  try {
    return questions_.set_if_missing(key_, reason);
  } catch (const CommError&) {
    return reason;
  }
}

std::string KeyStoreMembership::silent_ranks() {
  try {
    const std::vector<std::string> names = questions_.silent(kSilence);
    if (names.empty()) return {};
    return fmt::format("{} {} no sign of life: stopped, or cut off from the network", fmt::join(names, ", "),
                       names.size() == 1 ? "gives" : "give");
  } catch (const CommError&) {
    if (rank_ == 0) return {};
    return fmt::format("{}, which serves the store, does not answer: stopped, or cut off from the network",
                       names_[0]);
  }
}

std::string KeyStoreMembership::awaited_reason() {
  const Deadline deadline = std::chrono::steady_clock::now() + kNewsDelay;
  while (!ended() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(milliseconds(5));
  return Membership::awaited_reason();
}

}  // namespace tandem
