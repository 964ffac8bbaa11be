#include "tandem/comm/key_store/tcp_key_store.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/comm/handshake.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kLongestPause{100};
constexpr milliseconds kConnectTime{1000};
constexpr milliseconds kProofTime{2000};

std::string problem_text() { return errno == 0 ? "it closed the connection" : std::strerror(errno); }

}  // namespace

TcpKeyStore::TcpKeyStore(std::string host, int port, const Secret& secret, Serve serve,
                         milliseconds connect_timeout, milliseconds patience, const std::string& owner,
                         const std::function<void()>& while_waiting)
    : host_(std::move(host)),
      owner_(owner.empty() ? "" : " of " + owner),
      server_(serve == Serve::No
                  ? nullptr
                  : std::make_unique<TcpKeyStoreServer>(host_, port, secret, serve == Serve::ManyHosts)),
      port_(server_ ? server_->port() : port),
      patience_(patience) {
  const Deadline deadline = Clock::now() + connect_timeout;
  std::string problem = "no answer";
  for (milliseconds pause{2}; !reach(secret, deadline, &problem);
       pause = std::min(2 * pause, kLongestPause)) {
    if (Clock::now() + pause > deadline) {
      throw CommError(
          "store {}: not reached within {} s: {}; is rank 0 running, and are MASTER_ADDR and MASTER_PORT the "
          "same on all ranks?",
          description(), static_cast<double>(connect_timeout.count()) / 1000, problem);
    }
    std::this_thread::sleep_for(pause);
    if (while_waiting) while_waiting();
  }
  local_address_ = tandem::local_address(socket_);
  server_address_ = peer_address(socket_);
}

// An attempt is short, so that one that got lost in a crowd of strangers is made again soon.
bool TcpKeyStore::reach(const Secret& secret, Deadline deadline, std::string* problem) {
  const auto until = [&](milliseconds limit) { return std::min(deadline, Clock::now() + limit); };
  socket_ = connect_once(server_ ? server_->address() : host_, port_, until(kConnectTime), problem);
  if (!socket_.open()) return false;
  const Proof proof = prove(socket_, secret, Side::Client, kKeyStorePurpose, until(kProofTime), problem);
  if (proof == Proof::Known) return true;
  socket_.close();
  if (proof == Proof::Stranger) throw StrangerError("store {}: {}", description(), *problem);
  *problem += "; is it another program that listens there?";
  return false;
}

TcpKeyStore::~TcpKeyStore() = default;

std::string TcpKeyStore::description() const { return fmt::format("tcp {}:{}{}", host_, port_, owner_); }

void TcpKeyStore::fail(const std::string& problem) const {
  throw CommError("store {}: {}", description(), problem);
}

std::vector<std::string> TcpKeyStore::ask(const std::vector<std::string_view>& request, milliseconds limit) {
  std::lock_guard lock(mutex_);
  if (!socket_.open()) fail("is down");
  const std::optional<std::vector<std::string>> reply = exchange(request, Clock::now() + limit);
  if (!reply || reply->empty() || (*reply)[0] == "end") {
    const std::string problem = reply ? "it has ended" : problem_text();
    socket_.close();  // what comes now would be the answer to an old question
    fail(fmt::format("is down: {}", problem));
  }
  if ((*reply)[0] == "refused") fail(fmt::format("{} '{}': {}", request[0], request[1], reply->at(1)));
  return *reply;
}

std::optional<std::vector<std::string>> TcpKeyStore::exchange(const std::vector<std::string_view>& request,
                                                              Deadline deadline) {
  if (!send_all(socket_, encode_frame(request), deadline)) return std::nullopt;
  try {
    for (;;) {
      if (auto reply = take_frame(unread_)) return reply;
      if (!receive_some(socket_, unread_, deadline)) return std::nullopt;
    }
  } catch (const CommError&) {
    errno = EPROTO;
    return std::nullopt;
  }
}

void TcpKeyStore::set(const std::string& key, const std::string& value) {
  ask({"set", key, value}, patience_);
}

std::optional<std::string> TcpKeyStore::wait_for(const std::string& key, milliseconds timeout) {
  const std::vector<std::string> reply =
      ask({"get", key, std::to_string(timeout.count())}, timeout + patience_);
  return reply.size() == 2 ? std::optional(reply[1]) : std::nullopt;
}

std::string TcpKeyStore::get(const std::string& key, milliseconds timeout) {
  if (auto value = wait_for(key, timeout)) return *std::move(value);
  fail(fmt::format("key '{}' did not appear within {} s", key, static_cast<double>(timeout.count()) / 1000));
}

std::optional<std::string> TcpKeyStore::try_get(const std::string& key) {
  const std::vector<std::string> reply = ask({"try_get", key}, patience_);
  return reply.size() == 2 ? std::optional(reply[1]) : std::nullopt;
}

int64_t TcpKeyStore::add(const std::string& key, int64_t amount) {
  const std::vector<std::string> reply = ask({"add", key, std::to_string(amount)}, patience_);
  int64_t value = 0;
  if (reply.size() == 2) std::from_chars(reply[1].data(), reply[1].data() + reply[1].size(), value);
  return value;
}

std::string TcpKeyStore::set_if_missing(const std::string& key, const std::string& value) {
  return ask({"set_if_missing", key, value}, patience_).at(1);
}

void TcpKeyStore::remove(const std::string& key) { ask({"remove", key}, patience_); }

void TcpKeyStore::open_lifeline(const std::string& name, const std::string& last_key,
                                const std::string& last_words) {
  ask({"lifeline", name, last_key, last_words}, patience_);
  constexpr std::string_view kForever = "1000000000000";
  send_all(socket_, encode_frame({"get", last_key, kForever}), Clock::now() + patience_);
}

void TcpKeyStore::say_alive() {
  send_all(socket_, encode_frame({"alive"}), Clock::now() + milliseconds(100));
}
void TcpKeyStore::say_farewell() {
  send_all(socket_, encode_frame({"farewell"}), Clock::now() + milliseconds(500));
}

TcpKeyStore::News TcpKeyStore::listen(milliseconds limit, std::string* value) {
  const Deadline deadline = Clock::now() + limit;
  try {
    for (;;) {
      const auto reply = take_frame(unread_);
      if (reply && reply->size() == 2 && (*reply)[0] == "ok") {
        *value = (*reply)[1];
        return News::Value;
      }
      if (reply && !reply->empty() && (*reply)[0] == "end") return News::ServerEnded;
      if (!reply && !receive_some(socket_, unread_, deadline)) {
        return errno == ETIMEDOUT && Clock::now() >= deadline ? News::None : News::ServerLost;
      }
    }
  } catch (const CommError&) {
    return News::ServerLost;
  }
}

std::vector<std::string> TcpKeyStore::silent(milliseconds limit) {
  std::vector<std::string> reply = ask({"silent", std::to_string(limit.count())}, patience_);
  reply.erase(reply.begin());
  return reply;
}

}  // namespace tandem
