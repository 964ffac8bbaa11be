#include "tandem/comm/tcp/free_port.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <random>

#include "tandem/base/error.h"
#include "tandem/comm/tcp/tcp_socket.h"

namespace tandem {
namespace {

constexpr int kLowest = 10000, kHighest = 65535;
constexpr int kAttempts = 1000;

// The port that was bound; 0 where it could not be. Any free one where `port` is 0.
int bound(int port) {
  const Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  socklen_t size = sizeof(address);
  if (!socket.open() || ::bind(socket.fd(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      ::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return 0;
  return ntohs(address.sin_port);
}

}  // namespace

int free_port() {
  int first = 32768, last = 60999;  // Linux's own defaults
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first >> last;
  std::random_device random;
  std::uniform_int_distribution<int> any(kLowest, kHighest);
  for (int i = 0; i < kAttempts; ++i) {
    const int port = any(random);
    if ((port < first || port > last) && bound(port) != 0) return port;
  }
  if (const int port = bound(0)) return port;  // where nearly all ports are for connections
  throw CommError("no free tcp port on this machine: {}", std::strerror(errno));
}

}  // namespace tandem
