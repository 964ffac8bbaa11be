#include "tandem/http/address.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "tandem/base/descriptor.h"
#include "tandem/base/error.h"
#include "tandem/base/utf8.h"

namespace tandem::http {
namespace {

using AddressList = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

AddressList look_up(const Address& address) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(address.host.empty() ? nullptr : address.host.c_str(),
                                  std::to_string(address.port).c_str(), &hints, &found);
  if (error != 0) throw ConfigError("{}: no such address: {}", address.text(), ::gai_strerror(error));
  return {found, ::freeaddrinfo};
}

int port_of(int fd) {
  sockaddr_storage own{};
  socklen_t size = sizeof(own);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) != 0) return 0;
  return ntohs(own.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(own).sin6_port
                                         : reinterpret_cast<const sockaddr_in&>(own).sin_port);
}

}  // namespace

std::string Address::text() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

Address parse_address(std::string_view text, std::string_view what) {
  const auto refuse = [&]() -> Address {
    throw ConfigError("{}: expected HOST:PORT such as 127.0.0.1:9090 or :9090, found '{}'", what,
                      printable(text));
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return refuse();
  Address address;
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return refuse();
  }
  if (host.size() > 253 || host.find_first_of(" /\\@?#[]") != std::string_view::npos ||
      host.find('\0') != std::string_view::npos)
    return refuse();
  address.host = host;
  const std::string_view port = text.substr(colon + 1);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (error != std::errc() || end != port.data() + port.size() || address.port < 0 || address.port > 65535)
    return refuse();
  return address;
}

bool is_loopback(const Address& address) {
  return address.host == "localhost" || address.host == "::1" || address.host.starts_with("127.");
}

int listen_on(Address& address) {
  const AddressList list = look_up(address);
  int reason = 0;
  for (const addrinfo* one = list.get(); one != nullptr; one = one->ai_next) {
    Descriptor fd(
        ::socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, one->ai_protocol));
    if (fd.get() < 0) {
      reason = errno;
      continue;
    }
    const int yes = 1;
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (::bind(fd.get(), one->ai_addr, one->ai_addrlen) != 0 || ::listen(fd.get(), 256) != 0) {
      reason = errno;
      continue;
    }
    address.port = port_of(fd.get());
    return fd.release();
  }
  throw ListenError("{}: cannot be listened on: {}{}", address.text(), std::strerror(reason),
                    reason == EADDRINUSE ? "; name another port, or 0 for any that is free" : "");
}

}  // namespace tandem::http
