// A port for a program that is about to start.
#pragma once

namespace tandem {

// Free now on all of this machine's addresses, and not one of those that the system gives to outgoing
// connections: any program may be given one of these before the port is used. Throws CommError where there is
// none.
int free_port();

}  // namespace tandem
