#include "tandem/comm/tcp_store_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "tandem/base/error.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

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

}  // namespace

struct TcpStoreServer::Client {
  Socket socket;
  std::string unread, unsent;
  bool greeted = false;
  std::string wanted_key;  // of a get that waits; one at a time
  bool waits = false;
  Deadline give_up;
  std::string name, last_key, last_words;  // of a lifeline
  Deadline heard;
};

TcpStoreServer::TcpStoreServer(const std::string& host, int port) : listener_(listen_at(host, port)) {
  port_ = local_port(listener_);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw CommError("store: cannot make a pipe: {}", std::strerror(errno));
  stop_reader_ = Socket(ends[0]);
  stop_writer_ = Socket(ends[1]);
  thread_ = std::jthread([this] { serve(); });
}

TcpStoreServer::~TcpStoreServer() { stop_writer_.close(); }  // the thread sees the end of the pipe

void TcpStoreServer::serve() {
  for (;;) {
    const int wait_ms = answer_late_gets();
    std::vector<pollfd> entries{{stop_reader_.fd(), POLLIN, 0}, {listener_.fd(), POLLIN, 0}};
    for (const auto& client : clients_) {
      entries.push_back(
          {client->socket.fd(), static_cast<short>(client->unsent.empty() ? POLLIN : POLLIN | POLLOUT), 0});
    }
    if (poll(entries.data(), entries.size(), wait_ms) < 0) continue;
    if (entries[0].revents != 0) break;
    for (size_t i = 0; i < clients_.size(); ++i) {
      Client& client = *clients_[i];
      if (entries[i + 2].revents & POLLOUT) reply(client, {});
      if (entries[i + 2].revents & ~POLLOUT && client.socket.open()) read_from(client);
    }
    std::erase_if(clients_, [](const auto& client) { return !client->socket.open(); });
    if (entries[1].revents != 0) accept_clients();
  }
  for (const auto& client : clients_) {
    if (client->socket.open()) reply(*client, {"end"});
  }
}

void TcpStoreServer::accept_clients() {
  for (;;) {
    const int fd = accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    clients_.push_back(std::make_unique<Client>());
    clients_.back()->socket = Socket(fd);
  }
}

void TcpStoreServer::read_from(Client& client) {
  const Deadline now = Clock::now();
  if (!receive_some(client.socket, client.unread, now)) {
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

void TcpStoreServer::lose(Client& client) {
  client.socket.close();
  if (client.name.empty()) return;
  client.name.clear();
  if (!values_.contains(client.last_key)) set(client.last_key, client.last_words);
}

void TcpStoreServer::answer(Client& client, const std::vector<std::string>& request) {
  const auto is = [&](std::string_view name, size_t num_arguments) {
    return request.size() == num_arguments + 1 && request[0] == name;
  };
  client.heard = Clock::now();
  if (is("hello", 1) && request[1] == kStoreMagic) {
    client.greeted = true;
    return reply(client, {"ok"});
  }
  if (!client.greeted) throw CommError("no greeting");
  if (is("set", 2)) {
    set(request[1], request[2]);
    reply(client, {"ok"});
  } else if (is("get", 2)) {
    const auto found = values_.find(request[1]);
    if (found != values_.end()) return reply(client, {"ok", found->second});
    client.waits = true;
    client.wanted_key = request[1];
    client.give_up = Clock::now() + std::chrono::milliseconds(parse_number(request[2]));
  } else if (is("try_get", 1)) {
    const auto found = values_.find(request[1]);
    if (found == values_.end()) return reply(client, {"ok"});
    reply(client, {"ok", found->second});
  } else if (is("add", 2)) {
    const auto found = values_.find(request[1]);
    const std::optional<int64_t> before = found == values_.end() ? 0 : as_number(found->second);
    if (!before) return reply(client, {"refused", "key holds no number"});
    set(request[1], std::to_string(*before + parse_number(request[2])));
    reply(client, {"ok", values_[request[1]]});
  } else if (is("set_if_missing", 2)) {
    if (!values_.contains(request[1])) set(request[1], request[2]);
    reply(client, {"ok", values_[request[1]]});
  } else if (is("remove", 1)) {
    values_.erase(request[1]);
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
    const auto limit = std::chrono::milliseconds(parse_number(request[1]));
    std::vector<std::string_view> fields{"ok"};
    for (const auto& other : clients_) {
      if (!other->name.empty() && Clock::now() - other->heard > limit) fields.push_back(other->name);
    }
    reply(client, fields);
  } else {
    throw CommError("unknown request");
  }
}

void TcpStoreServer::set(const std::string& key, const std::string& value) {
  values_[key] = value;
  for (const auto& client : clients_) {
    if (!client->waits || client->wanted_key != key || !client->socket.open()) continue;
    client->waits = false;
    reply(*client, {"ok", value});
  }
}

// Sends what there is to send, without waiting: a client that does not read must not hold up the others.
void TcpStoreServer::reply(Client& client, const std::vector<std::string_view>& fields) {
  if (!fields.empty()) client.unsent += encode_frame(fields);
  const ssize_t sent =
      ::send(client.socket.fd(), client.unsent.data(), client.unsent.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent > 0) client.unsent.erase(0, static_cast<size_t>(sent));
  if (sent < 0 && errno != EAGAIN && errno != EINTR) client.unsent.clear();  // the next read sees the end
}

int TcpStoreServer::answer_late_gets() {
  const Deadline now = Clock::now();
  int64_t wait_ms = -1;
  for (const auto& client : clients_) {
    if (!client->waits) continue;
    const int64_t left = std::chrono::ceil<std::chrono::milliseconds>(client->give_up - now).count();
    if (left <= 0) {
      client->waits = false;
      reply(*client, {"late"});
    } else if (wait_ms < 0 || left < wait_ms) {
      wait_ms = left;
    }
  }
  return static_cast<int>(std::min<int64_t>(wait_ms, 1000000));
}

}  // namespace tandem
