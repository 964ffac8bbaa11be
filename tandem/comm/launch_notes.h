// What a rank tells its launcher beside its exit code, each by a file that it makes at a path out of its
// environment:
//
//   TANDEM_LOST_PEER_FILE    it failed for want of a peer: the cause is elsewhere.
//
//   TANDEM_FINAL_FILE        its exit code is one of docs/interface.md; 2, 3 or 4 would come again.
//
//   TANDEM_INTERRUPTED_FILE  it was asked to stop: the signal's number, before any other rank can know.
//
// Nothing happens where no launcher asks.
#pragma once

namespace tandem {

inline constexpr const char* kLostPeerVariable = "TANDEM_LOST_PEER_FILE";
inline constexpr const char* kFinalVariable = "TANDEM_FINAL_FILE";
inline constexpr const char* kInterruptedVariable = "TANDEM_INTERRUPTED_FILE";

void tell_lost_peer();  // before the process ends
void tell_final();

// For a signal handler: the path is looked up beforehand, and telling neither allocates nor changes errno.
void prepare_to_tell_interrupted();
void tell_interrupted(int signal) noexcept;

}  // namespace tandem
