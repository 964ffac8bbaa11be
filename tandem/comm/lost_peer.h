// How a rank tells its launcher that it failed for want of a peer, so that the launcher looks for the cause
// elsewhere: its exit code does not say so. It makes an empty file, at the path that the launcher has put
// into a variable.
#pragma once

namespace tandem {

inline constexpr const char* kLostPeerVariable = "TANDEM_LOST_PEER_FILE";

void tell_lost_peer();  // before the process ends; does nothing where no launcher asks

}  // namespace tandem
