// This node's place in the network.
#pragma once

#include <string>

namespace tandem {

// The address under which a peer at `host` would see this machine. A name that leads to loopback is this
// machine's own (Debian's installer puts 127.0.1.1 into /etc/hosts): then the address under which it is seen
// from outside. 127.0.0.1 where there is no way to it.
std::string address_towards(const std::string& host, int port);

bool is_own_address(const std::string& host);  // whether `host` is one of this machine's addresses

}  // namespace tandem
