// The addresses by which this machine is seen.
#pragma once

#include <string>

namespace tandem {

inline constexpr const char* kLoopback = "127.0.0.1";

// Whether it means this machine to whoever says it. Not so a machine's own name that leads to loopback there
// (Debian's installer puts 127.0.1.1 into /etc/hosts): other machines mean it by another address.
bool means_loopback(const std::string& host);

// This machine's end of the way to `host`; loopback where there is no way. Nothing is sent.
std::string address_on_the_way_to(const std::string& host, int port);

// By which machines outside see this one: its end of the way to them, else the first address that is not
// loopback, else loopback.
std::string outer_address();

}  // namespace tandem
