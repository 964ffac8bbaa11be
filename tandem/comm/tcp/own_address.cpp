#include "tandem/comm/tcp/own_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>

#include "tandem/comm/tcp/tcp_socket.h"

namespace tandem {
namespace {

constexpr const char* kOutside = "192.0.2.1";  // nobody's (RFC 5737)

std::string text_of(const sockaddr* address) {
  char text[INET_ADDRSTRLEN];
  const auto* own = reinterpret_cast<const sockaddr_in*>(address);
  return ::inet_ntop(AF_INET, &own->sin_addr, text, sizeof(text)) != nullptr ? text : kLoopback;
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

bool means_loopback(const std::string& host) {
  return host == "localhost" || host.starts_with("127.") || host == "::1";
}

// Connecting a datagram socket sends nothing; it only asks the kernel which way it would go.
std::string address_on_the_way_to(const std::string& host, int port) {
  addrinfo wanted{};
  wanted.ai_family = AF_INET;
  wanted.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &found) != 0) return kLoopback;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> peer(found, &::freeaddrinfo);
  const Socket probe(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in own{};
  socklen_t size = sizeof(own);
  if (!probe.open() || ::connect(probe.fd(), peer->ai_addr, peer->ai_addrlen) != 0 ||
      ::getsockname(probe.fd(), reinterpret_cast<sockaddr*>(&own), &size) != 0)
    return kLoopback;
  return text_of(reinterpret_cast<const sockaddr*>(&own));
}

std::string outer_address() {
  const std::string address = address_on_the_way_to(kOutside, 1);
  return address.starts_with("127.") ? first_outer_address() : address;
}

}  // namespace tandem
