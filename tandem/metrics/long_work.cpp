#include "tandem/metrics/long_work.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "tandem/base/quantity.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kInALog(3000), kAtFirst(1000), kOnATerminal(200);

}  // namespace

LongWork::LongWork(std::string what, int64_t total_bytes, bool quiet, std::FILE* out, Duration between)
    : what_(std::move(what)),
      total_(total_bytes),
      quiet_(quiet),
      out_(out),
      terminal_(::isatty(::fileno(out)) == 1),
      first_(between != kUsual ? between
             : terminal_       ? kAtFirst
                               : kInALog),
      between_(between != kUsual ? between
               : terminal_       ? kOnATerminal
                                 : kInALog) {}

LongWork::~LongWork() {
  if (!terminal_ || !told_any_) return;
  std::fputs("\r\x1b[K", out_);  // what comes next has the line
  std::fflush(out_);
}

void LongWork::done(int64_t bytes) {
  if (quiet_) return;
  const std::lock_guard lock(mutex_);
  done_ += bytes;
  const auto now = Clock::now();
  if (now - told_ < (told_any_ ? between_ : first_)) return;
  told_ = now;
  told_any_ = true;
  const double seconds = std::max(1e-3, std::chrono::duration<double>(now - began_).count());
  const auto speed = static_cast<int64_t>(static_cast<double>(done_) / seconds);
  const std::string line = fmt::format("{}: {} of {}, {}/s", what_, format_bytes(done_), format_bytes(total_),
                                       format_bytes(speed));
  std::fputs(terminal_ ? fmt::format("\r{}\x1b[K", line).c_str() : fmt::format("{}\n", line).c_str(), out_);
  std::fflush(out_);
}

}  // namespace tandem
