#include "tandem/kernels/cuda/nccl/peer_watch.h"

#include <thread>

#include "tandem/base/error.h"
#include "tandem/comm/membership.h"

namespace tandem::cuda {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::microseconds kSpin{50};
constexpr std::chrono::microseconds kNap{20};

}  // namespace

PeerWatch::PeerWatch(const Communicators& control)
    : membership_(*control.membership), timeout_(control.timeout) {}

void PeerWatch::wait(std::string_view what, const std::function<bool()>& done) const {
  const Clock::time_point start = Clock::now();
  while (!done()) {
    throw_if_ended(what);
    const auto waited = Clock::now() - start;
    if (waited > timeout_) fail_timeout(what);
    if (waited > kSpin) std::this_thread::sleep_for(kNap);
  }
}

void PeerWatch::throw_if_ended(std::string_view what) const {
  if (membership_.ended()) throw CommError("{}: {}", what, membership_.reason());
}

void PeerWatch::fail(std::string_view what, const std::string& found) const {
  const std::string known = membership_.awaited_reason();
  end(what, known.empty() ? found : known);
}

void PeerWatch::fail_timeout(std::string_view what) const {
  const std::string silent = membership_.silent_ranks();
  const double seconds = static_cast<double>(timeout_.count()) / 1000;
  if (!silent.empty()) end(what, fmt::format("{}; waited {} s", silent, seconds));
  end(what,
      fmt::format("the ranks' GPUs did not come to an end within {} s, though every rank gives signs of life "
                  "(TANDEM_COMM_TIMEOUT_S sets the time to wait)",
                  seconds));
}

void PeerWatch::end(std::string_view what, const std::string& reason) const {
  throw CommError("{}: {}", what, membership_.end(reason));
}

}  // namespace tandem::cuda
