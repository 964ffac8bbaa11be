// Waits for what needs the GPUs of other ranks. A GPU that waits for a peer that will never come waits for
// ever, so the host looks after both while it waits: a lost rank, a failure of NCCL and the end of the time
// for a collective end the wait with a CommError, and the world with the same reason.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "tandem/comm/connect.h"

namespace tandem::cuda {

class PeerWatch {
 public:
  explicit PeerWatch(const Communicators& control);  // which outlives it

  // Until `done` is true. `what` begins the message of a CommError: "nccl (data axis)".
  void wait(std::string_view what, const std::function<bool()>& done) const;
  void throw_if_ended(std::string_view what) const;
  // NCCL has failed. Where a peer is lost it fails first and the reason comes a moment later, so that one is
  // waited for.
  [[noreturn]] void fail(std::string_view what, const std::string& found) const;

 private:
  [[noreturn]] void fail_timeout(std::string_view what) const;
  [[noreturn]] void end(std::string_view what, const std::string& reason) const;

  Membership& membership_;
  const std::chrono::milliseconds timeout_;
};

}  // namespace tandem::cuda
