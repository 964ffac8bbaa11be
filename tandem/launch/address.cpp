#include "tandem/launch/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "tandem/base/error.h"

namespace tandem {
namespace {

class ProbeSocket {
 public:
  ProbeSocket(int family, int type) : fd_(::socket(family, type | SOCK_CLOEXEC, 0)) {}
  ~ProbeSocket() {
    if (fd_ >= 0) ::close(fd_);
  }
  ProbeSocket(const ProbeSocket&) = delete;
  ProbeSocket& operator=(const ProbeSocket&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

AddressList resolve(const std::string& host, int port) {
  addrinfo wanted{};
  wanted.ai_family = AF_INET;
  wanted.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &found) != 0) found = nullptr;
  return {found, &::freeaddrinfo};
}

constexpr const char* kLoopback = "127.0.0.1";
constexpr const char* kOutside = "192.0.2.1";  // nobody's (RFC 5737); nothing is sent there

bool is_loopback(const std::string& host) { return host == "localhost" || host.starts_with("127."); }

std::string text_of(const sockaddr* address) {
  char text[INET_ADDRSTRLEN];
  const auto* own = reinterpret_cast<const sockaddr_in*>(address);
  return ::inet_ntop(AF_INET, &own->sin_addr, text, sizeof(text)) != nullptr ? text : kLoopback;
}

// Connecting a datagram socket sends nothing; it only asks the kernel which way it would go.
std::string way_towards(const std::string& host, int port) {
  const AddressList peer = resolve(host, port);
  const ProbeSocket socket(AF_INET, SOCK_DGRAM);
  sockaddr_in own{};
  socklen_t size = sizeof(own);
  if (!peer || socket.fd() < 0 || ::connect(socket.fd(), peer->ai_addr, peer->ai_addrlen) != 0 ||
      ::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&own), &size) != 0)
    return kLoopback;
  return text_of(reinterpret_cast<const sockaddr*>(&own));
}

std::string first_outer_address() {
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) return kLoopback;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(found, &::freeifaddrs);
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    const bool is_outer = (entry->ifa_flags & (IFF_UP | IFF_LOOPBACK)) == IFF_UP;
    if (is_outer && entry->ifa_addr != nullptr && entry->ifa_addr->sa_family == AF_INET)
      return text_of(entry->ifa_addr);
  }
  return kLoopback;
}

}  // namespace

int free_port() {
  const ProbeSocket socket(AF_INET, SOCK_STREAM);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t size = sizeof(address);
  if (socket.fd() < 0 || ::bind(socket.fd(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      ::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    throw CommError("no free tcp port on this machine: {}", std::strerror(errno));
  return ntohs(address.sin_port);
}

std::string address_towards(const std::string& host, int port) {
  std::string address = way_towards(host, port);
  if (is_loopback(host) || !is_loopback(address)) return address;
  address = way_towards(kOutside, 1);
  return is_loopback(address) ? first_outer_address() : address;
}

bool is_own_address(const std::string& host) {
  const AddressList list = resolve(host, 0);
  const ProbeSocket socket(AF_INET, SOCK_DGRAM);
  return list && socket.fd() >= 0 && ::bind(socket.fd(), list->ai_addr, list->ai_addrlen) == 0;
}

}  // namespace tandem
