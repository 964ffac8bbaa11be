// Where a server listens: "127.0.0.1:9090", "[::1]:9090", "localhost:0", ":9090" (every address of this
// host).
#pragma once

#include <string>
#include <string_view>

namespace tandem::http {

struct Address {
  std::string host;  // empty: every address
  int port = 0;      // 0: any that is free
  std::string text() const;
};

// Throws ConfigError that begins with `what`: "log.prometheus".
Address parse_address(std::string_view text, std::string_view what);

// Whether only this machine can reach it.
bool is_loopback(const Address& address);

// A socket that listens there, which the caller closes. Sets the port where any would do. Throws ConfigError
// where the host has no address, ListenError where the port cannot be had.
int listen_on(Address& address);

}  // namespace tandem::http
