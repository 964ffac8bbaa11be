#include "tandem/launch/address.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>

#include "tandem/comm/tcp/own_address.h"

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

}  // namespace

std::string address_towards(const std::string& host, int port) {
  const std::string address = address_on_the_way_to(host, port);
  return means_loopback(host) || !means_loopback(address) ? address : outer_address();
}

bool is_own_address(const std::string& host) {
  const AddressList list = resolve(host, 0);
  const ProbeSocket socket(AF_INET, SOCK_DGRAM);
  return list && socket.fd() >= 0 && ::bind(socket.fd(), list->ai_addr, list->ai_addrlen) == 0;
}

}  // namespace tandem
