#include "tandem/metrics/long_work.h"

#include <fmt/format.h>

#include "tandem/base/quantity.h"

namespace tandem {

void LongWork::done(int64_t bytes) {
  constexpr std::chrono::seconds kBetweenLines(3);
  if (quiet_) return;
  const std::lock_guard lock(mutex_);
  done_ += bytes;
  const auto now = std::chrono::steady_clock::now();
  if (now - told_ < kBetweenLines) return;
  told_ = now;
  std::fprintf(out_, "%s\n",
               fmt::format("{}: {} of {}", what_, format_bytes(done_), format_bytes(total_)).c_str());
}

}  // namespace tandem
