#include "tandem/comm/key_store/tcp_key_store_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "tandem/base/error.h"
#include "tandem/comm/handshake.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kStrangerTime{5000};  // for a stranger to show that it is none
constexpr milliseconds kLeastTime{100};      // that it has even when others come
constexpr milliseconds kPause{100};          // where the process has no descriptor left
constexpr int64_t kForever = 1000000000000;
constexpr int kAcceptsAtOnce = 32;       // between looks at those who are there
constexpr size_t kMostUnsent = 1 << 20;  // whoever does not read is not heard either
constexpr size_t kMostKeys = 1 << 20;
constexpr size_t kMostBytes = 256 << 20;

// A part of what the process may open: training needs the rest.
size_t most_strangers() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return 256;
  return std::clamp<size_t>(limit.rlim_cur / 8, 8, 256);
}

std::optional<int64_t> as_number(const std::string& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

int64_t parse_number(const std::string& text) {
  const auto number = as_number(text);
  if (!number) throw CommError("'{}' is no number", text);
  return *number;
}

using Fields = std::vector<std::string_view>;
const Fields kFull{"refused", "the store is full"};

}  // namespace

struct TcpKeyStoreServer::Client {
  Socket socket;
  std::unique_ptr<Handshake> handshake;  // until it is no stranger any more
  Deadline came;
  std::string unread, unsent;
  std::string wanted_key;  // of a get that waits; one at a time
  bool waits = false;
  Deadline give_up;
  std::string name, last_key, last_words;  // of a lifeline
  Deadline heard;

  bool is_stranger() const { return handshake && socket.open(); }
};

TcpKeyStoreServer::TcpKeyStoreServer(const std::string& host, int port, const Secret& secret,
                                     bool from_elsewhere)
    : secret_(secret),
      most_strangers_(most_strangers()),
      listeners_(listen_by_name(host, port, from_elsewhere)),
      port_(local_port(listeners_[0])) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw CommError("store: cannot make a pipe: {}", std::strerror(errno));
  stop_reader_ = Socket(ends[0]);
  stop_writer_ = Socket(ends[1]);
  thread_ = std::jthread([this] { serve(); });
}

TcpKeyStoreServer::~TcpKeyStoreServer() { stop_writer_.close(); }  // the thread sees the end of the pipe

void TcpKeyStoreServer::serve() {
  for (;;) {
    const int wait_ms = attend();
    std::vector<pollfd> entries{{stop_reader_.fd(), POLLIN, 0}};
    const bool accepts = may_accept(Clock::now());
    for (const Socket& listener : listeners_) entries.push_back({accepts ? listener.fd() : -1, POLLIN, 0});
    const size_t first = entries.size();
    for (const auto& client : clients_) {
      const int in = client->unsent.size() > kMostUnsent ? 0 : POLLIN;
      const int out = client->unsent.empty() ? 0 : POLLOUT;
      entries.push_back({client->socket.fd(), static_cast<short>(in | out), 0});
    }
    if (poll(entries.data(), entries.size(), wait_ms) < 0) {
      if (errno != EINTR) std::this_thread::sleep_for(kPause);
      continue;
    }
    if (entries[0].revents != 0) break;
    for (size_t i = 0; i + first < entries.size(); ++i) {
      Client& client = *clients_[i];
      const short events = entries[i + first].revents;
      if (events & POLLOUT) send_rest(client);
      if (events & ~POLLOUT && client.socket.open())
        client.handshake ? read_proof(client) : read_from(client);
    }
    for (size_t i = 0; i < listeners_.size(); ++i) {
      if (entries[i + 1].revents != 0) accept_strangers(listeners_[i]);
    }
    std::erase_if(clients_, [](const auto& client) { return !client->socket.open(); });
  }
  for (const auto& client : clients_) {
    if (!client->handshake) reply(*client, {"end"});
  }
}

size_t TcpKeyStoreServer::num_strangers() const {
  return static_cast<size_t>(
      std::ranges::count_if(clients_, [](const auto& client) { return client->is_stranger(); }));
}

TcpKeyStoreServer::Client* TcpKeyStoreServer::oldest_stranger() const {
  const auto found = std::ranges::find_if(clients_, [](const auto& client) { return client->is_stranger(); });
  return found == clients_.end() ? nullptr : found->get();
}

bool TcpKeyStoreServer::may_accept(Deadline now) const {
  if (now < accept_again_) return false;
  return num_strangers() < most_strangers_ || now - oldest_stranger()->came >= kLeastTime;
}

void TcpKeyStoreServer::accept_strangers(const Socket& listener) {
  const Deadline now = Clock::now();
  for (int i = 0; i < kAcceptsAtOnce && may_accept(now); ++i) {
    const int fd = accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (fd < 0) {
      if (errno != EAGAIN) accept_again_ = now + kPause;
      return;
    }
    if (num_strangers() >= most_strangers_) oldest_stranger()->socket.close();
    Client& client = *clients_.emplace_back(std::make_unique<Client>());
    client.socket = Socket(fd);
    client.handshake = std::make_unique<Handshake>(secret_, Side::Server, kKeyStorePurpose);
    client.came = now;
    client.unsent = client.handshake->opening();
    send_rest(client);
  }
}

void TcpKeyStoreServer::read_proof(Client& client) {
  Handshake& handshake = *client.handshake;
  const size_t left = handshake.num_wanted() - client.unread.size();
  if (!receive_some(client.socket, client.unread, Clock::now(), left)) {
    if (errno != ETIMEDOUT) client.socket.close();
    return;
  }
  if (client.unread.size() < handshake.num_wanted()) return;
  client.unsent += handshake.take(client.unread);
  client.unread.clear();
  send_rest(client);
  if (handshake.known()) {
    client.handshake.reset();
  } else {
    client.socket.close();
  }
}

void TcpKeyStoreServer::read_from(Client& client) {
  if (!receive_some(client.socket, client.unread, Clock::now())) {
    if (errno != ETIMEDOUT) lose(client);
    return;
  }
  try {
    while (client.socket.open()) {
      const auto request = take_frame(client.unread);
      if (!request) return;
      answer(client, *request);
    }
  } catch (const CommError&) {  // it speaks another language
    client.name.clear();
    lose(client);
  }
}

void TcpKeyStoreServer::lose(Client& client) {
  client.socket.close();
  if (client.name.empty()) return;
  client.name.clear();
  if (!values_.contains(client.last_key)) set(client.last_key, client.last_words);
}

void TcpKeyStoreServer::answer(Client& client, const std::vector<std::string>& request) {
  const auto is = [&](std::string_view name, size_t num_arguments) {
    return request.size() == num_arguments + 1 && request[0] == name;
  };
  client.heard = Clock::now();
  if (is("set", 2)) {
    reply(client, set(request[1], request[2]) ? Fields{"ok"} : kFull);
  } else if (is("get", 2)) {
    const auto found = values_.find(request[1]);
    if (found != values_.end()) return reply(client, {"ok", found->second});
    client.waits = true;
    client.wanted_key = request[1];
    client.give_up = Clock::now() + milliseconds(std::clamp<int64_t>(parse_number(request[2]), 0, kForever));
  } else if (is("try_get", 1)) {
    const auto found = values_.find(request[1]);
    if (found == values_.end()) return reply(client, {"ok"});
    reply(client, {"ok", found->second});
  } else if (is("add", 2)) {
    const auto found = values_.find(request[1]);
    const std::optional<int64_t> before = found == values_.end() ? 0 : as_number(found->second);
    if (!before) return reply(client, {"refused", "key holds no number"});
    int64_t number = 0;
    if (__builtin_add_overflow(*before, parse_number(request[2]), &number))
      return reply(client, {"refused", "key would hold a number that is too large"});
    const std::string sum = std::to_string(number);
    reply(client, set(request[1], sum) ? Fields{"ok", sum} : kFull);
  } else if (is("set_if_missing", 2)) {
    const bool there = values_.contains(request[1]) || set(request[1], request[2]);
    reply(client, there ? Fields{"ok", values_[request[1]]} : kFull);
  } else if (is("remove", 1)) {
    const auto found = values_.find(request[1]);
    if (found != values_.end()) {
      num_bytes_ -= found->first.size() + found->second.size();
      values_.erase(found);
    }
    reply(client, {"ok"});
  } else if (is("lifeline", 3)) {
    client.name = request[1];
    client.last_key = request[2];
    client.last_words = request[3];
    reply(client, {"ok"});
  } else if (is("alive", 0)) {  // that it was heard is all
  } else if (is("farewell", 0)) {
    client.name.clear();
  } else if (is("silent", 1)) {
    const milliseconds limit(std::clamp<int64_t>(parse_number(request[1]), 0, kForever));
    Fields fields{"ok"};
    for (const auto& other : clients_) {
      if (!other->name.empty() && Clock::now() - other->heard > limit) fields.push_back(other->name);
    }
    reply(client, fields);
  } else {
    throw CommError("unknown request");
  }
}

bool TcpKeyStoreServer::set(const std::string& key, const std::string& value) {
  const auto found = values_.find(key);
  const size_t before = found == values_.end() ? 0 : key.size() + found->second.size();
  const size_t bytes = num_bytes_ - before + key.size() + value.size();
  if (bytes > kMostBytes || (found == values_.end() && values_.size() >= kMostKeys)) return false;
  num_bytes_ = bytes;
  values_[key] = value;
  for (const auto& client : clients_) {
    if (!client->waits || client->wanted_key != key || !client->socket.open()) continue;
    client->waits = false;
    reply(*client, {"ok", value});
  }
  return true;
}

void TcpKeyStoreServer::reply(Client& client, const Fields& fields) {
  client.unsent += encode_frame(fields);
  send_rest(client);
}

// What can be sent without waiting: a client that does not read must not hold up the others.
void TcpKeyStoreServer::send_rest(Client& client) {
  const ssize_t sent =
      ::send(client.socket.fd(), client.unsent.data(), client.unsent.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent > 0) client.unsent.erase(0, static_cast<size_t>(sent));
  if (sent < 0 && errno != EAGAIN && errno != EINTR) client.unsent.clear();  // the next read sees the end
}

int TcpKeyStoreServer::attend() {
  const Deadline now = Clock::now();
  Deadline next = Deadline::max();
  for (const auto& client : clients_) {
    if (client->waits && client->give_up <= now) {
      client->waits = false;
      reply(*client, {"late"});
    }
    if (client->is_stranger() && client->came + kStrangerTime <= now) client->socket.close();
    if (client->waits) next = std::min(next, client->give_up);
    if (client->is_stranger()) next = std::min(next, client->came + kStrangerTime);
  }
  std::erase_if(clients_, [](const auto& client) { return !client->socket.open(); });
  if (now < accept_again_) {
    next = std::min(next, accept_again_);
  } else if (!may_accept(now)) {
    next = std::min(next, oldest_stranger()->came + kLeastTime);
  }
  if (next == Deadline::max()) return -1;
  return static_cast<int>(
      std::clamp<int64_t>(std::chrono::ceil<milliseconds>(next - now).count(), 0, 1000000));
}

}  // namespace tandem
