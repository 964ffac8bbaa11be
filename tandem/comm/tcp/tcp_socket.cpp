#include "tandem/comm/tcp/tcp_socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/system.h"
#include "tandem/comm/tcp/own_address.h"

namespace tandem {
namespace {

constexpr size_t kMaxFrameBytes = 16 << 20;
constexpr size_t kMaxFields = 1 << 16;  // as many as there may be ranks
constexpr int kBacklog = 1024;

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Addresses resolve(const char* host, int port, int flags, std::string* problem) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  const int status = getaddrinfo(host, std::to_string(port).c_str(), &hints, &list);
  if (status != 0) *problem = gai_strerror(status);
  return Addresses(status == 0 ? list : nullptr);
}

// Waits for an event; false where the time is over, with errno ETIMEDOUT.
bool wait_for(int fd, short events, Deadline deadline) {
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd entry{fd, events, 0};
    const int ready = poll(&entry, 1, static_cast<int>(std::clamp<int64_t>(left.count(), 0, 1000000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
    if (left.count() <= 0) {
      errno = ETIMEDOUT;
      return false;
    }
  }
}

void send_at_once(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

int bind_and_listen(const addrinfo& address) {
  const int fd =
      socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, address.ai_protocol);
  if (fd < 0) return -1;
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(fd, address.ai_addr, address.ai_addrlen) == 0 && listen(fd, kBacklog) == 0) return fd;
  const int error = errno;
  ::close(fd);
  errno = error;
  return -1;
}

void set_port(const addrinfo& address, int port) {
  const in_port_t number = htons(static_cast<uint16_t>(port));
  if (address.ai_family == AF_INET) {
    reinterpret_cast<sockaddr_in*>(address.ai_addr)->sin_port = number;
  } else {
    reinterpret_cast<sockaddr_in6*>(address.ai_addr)->sin6_port = number;
  }
}

[[noreturn]] void fail_to_listen(const std::string& host, int port, int error) {
  if (error == EADDRINUSE) {
    throw ListenError(
        "port {} on {}: already in use by another program; choose a free one (MASTER_PORT, or --master-port "
        "of the launcher), or end the run that holds it",
        port, host);
  }
  throw ListenError("port {} on {}: cannot listen there: {}", port, host, std::strerror(error));
}

bool is_loopback(const addrinfo& address) {
  if (address.ai_family == AF_INET)
    return ntohl(reinterpret_cast<const sockaddr_in*>(address.ai_addr)->sin_addr.s_addr) >> 24 == 127;
  return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(address.ai_addr)->sin6_addr);
}

std::string address_text(const sockaddr* address, socklen_t length, int* port) {
  char host[NI_MAXHOST], service[NI_MAXSERV];
  if (getnameinfo(address, length, host, sizeof(host), service, sizeof(service),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return {};
  }
  if (port) *port = std::stoi(service);
  return host;
}

template <typename GetName>
std::string address_text(const Socket& socket, GetName get_name, int* port) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (get_name(socket.fd(), reinterpret_cast<sockaddr*>(&address), &length) != 0) return {};
  return address_text(reinterpret_cast<sockaddr*>(&address), length, port);
}

// Where nobody listens at a port of this machine, the system may take that very port for the caller's end.
bool is_connected_to_itself(const Socket& socket) {
  int own = 0, other = 0;
  return address_text(socket, getsockname, &own) == address_text(socket, getpeername, &other) && own == other;
}

void append_length(std::string& bytes, size_t length) {
  for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(length >> shift & 0xff);
}
size_t length_at(std::string_view bytes, size_t offset) {
  size_t length = 0;
  for (size_t i = 0; i < 4; ++i)
    length |= static_cast<size_t>(static_cast<unsigned char>(bytes[offset + i])) << (8 * i);
  return length;
}

}  // namespace

Socket::~Socket() { close(); }
Socket::Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    close();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}
void Socket::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}
void Socket::shut_down() { shutdown(fd_, SHUT_RDWR); }

Socket connect_once(const std::string& host, int port, Deadline deadline, std::string* problem) {
  const Addresses list = resolve(host.c_str(), port, 0, problem);
  for (const addrinfo* address = list.get(); address; address = address->ai_next) {
    Socket connection(socket(address->ai_family, address->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK,
                             address->ai_protocol));
    if (!connection.open()) continue;
    int status = connect(connection.fd(), address->ai_addr, address->ai_addrlen);
    if (status != 0 && errno == EINPROGRESS && wait_for(connection.fd(), POLLOUT, deadline)) {
      int error = 0;
      socklen_t length = sizeof(error);
      getsockopt(connection.fd(), SOL_SOCKET, SO_ERROR, &error, &length);
      errno = error;
      status = error == 0 ? 0 : -1;
    }
    if (status == 0 && is_connected_to_itself(connection)) {
      errno = ECONNREFUSED;
      status = -1;
    }
    if (status == 0) {
      send_at_once(connection.fd());
      return connection;
    }
    *problem = std::strerror(errno);
  }
  return Socket();
}

Socket listen_at(const std::string& host, int port) {
  std::string problem;
  const Addresses own = resolve(host.c_str(), port, 0, &problem);
  if (!own) throw ListenError("port {} on {}: cannot look up {}: {}", port, host, host, problem);
  int error = EADDRNOTAVAIL;
  for (const addrinfo* address = own.get(); address; address = address->ai_next) {
    Socket listener(bind_and_listen(*address));
    if (listener.open()) return listener;
    if (errno != EADDRNOTAVAIL) error = errno;
  }
  fail_to_listen(host, port, error);
}

std::vector<Socket> listen_by_name(const std::string& host, int port, bool from_elsewhere) {
  std::string problem;
  Addresses own = resolve(host.c_str(), port, 0, &problem);
  // A new pod is "train-0" to itself at once, and "train-0.train" only when its cluster's names are told.
  if (!own && host.starts_with(hostname() + ".")) own = resolve(hostname().c_str(), port, 0, &problem);
  if (!own) throw ListenError("port {} on {}: cannot look up {}: {}", port, host, host, problem);
  std::vector<Socket> listeners;
  bool reached_from_elsewhere = !from_elsewhere || means_loopback(host);
  const auto add = [&](const addrinfo& address) {
    const std::string text = address_text(address.ai_addr, address.ai_addrlen, nullptr);
    const bool known = std::ranges::any_of(
        listeners, [&](const Socket& listener) { return local_address(listener) == text; });
    if (known) return;  // a name may lead to one address twice
    // The first one's port, where any was asked for.
    set_port(address, listeners.empty() ? port : local_port(listeners[0]));
    listeners.emplace_back(bind_and_listen(address));
    if (listeners.back().open()) {
      reached_from_elsewhere = reached_from_elsewhere || !is_loopback(address);
    } else {
      listeners.pop_back();
      if (errno != EADDRNOTAVAIL && errno != EAFNOSUPPORT) fail_to_listen(host, port, errno);
    }
  };
  for (const addrinfo* address = own.get(); address; address = address->ai_next) add(*address);
  if (!reached_from_elsewhere) {
    const Addresses outer = resolve(outer_address().c_str(), port, AI_NUMERICHOST, &problem);
    if (outer) add(*outer);
  }
  if (listeners.empty()) fail_to_listen(host, port, EADDRNOTAVAIL);
  return listeners;
}

std::string local_address(const Socket& socket) { return address_text(socket, getsockname, nullptr); }
std::string peer_address(const Socket& socket) { return address_text(socket, getpeername, nullptr); }
int local_port(const Socket& socket) {
  int port = 0;
  address_text(socket, getsockname, &port);
  return port;
}

std::string encode_frame(const std::vector<std::string_view>& fields) {
  size_t length = 0;
  for (std::string_view field : fields) length += 4 + field.size();
  std::string frame;
  append_length(frame, length);
  for (std::string_view field : fields) {
    append_length(frame, field.size());
    frame += field;
  }
  return frame;
}

std::optional<std::vector<std::string>> take_frame(std::string& bytes) {
  if (bytes.size() < 4) return std::nullopt;
  const size_t length = length_at(bytes, 0);
  if (length > kMaxFrameBytes) throw CommError("not the language of a tandem store");
  if (bytes.size() < 4 + length) return std::nullopt;
  std::vector<std::string> fields;
  for (size_t at = 4; at < 4 + length;) {
    const size_t left = 4 + length - at;
    if (left < 4 || left - 4 < length_at(bytes, at) || fields.size() == kMaxFields)
      throw CommError("not the language of a tandem store");
    const size_t field = length_at(bytes, at);
    fields.push_back(bytes.substr(at + 4, field));
    at += 4 + field;
  }
  bytes.erase(0, 4 + length);
  return fields;
}

bool send_all(const Socket& socket, std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) bytes.remove_prefix(static_cast<size_t>(sent));
    if (sent >= 0 || errno == EINTR) continue;
    if (errno != EAGAIN || !wait_for(socket.fd(), POLLOUT, deadline)) return false;
  }
  return true;
}

bool receive_some(const Socket& socket, std::string& bytes, Deadline deadline, size_t most) {
  char buffer[4096];
  for (;;) {
    const ssize_t received = ::recv(socket.fd(), buffer, std::min(most, sizeof(buffer)), MSG_DONTWAIT);
    if (received > 0) {
      bytes.append(buffer, static_cast<size_t>(received));
      return true;
    }
    if (received == 0) {
      errno = 0;
      return false;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN || !wait_for(socket.fd(), POLLIN, deadline)) return false;
  }
}

}  // namespace tandem
