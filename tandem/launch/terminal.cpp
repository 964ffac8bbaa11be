#include "tandem/launch/terminal.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>

namespace tandem {

bool Terminal::is_terminal(OutputStream stream) const { return ::isatty(fd(stream)) == 1; }

void Terminal::write(OutputStream stream, std::string_view bytes) {
  bool& lost = lost_[static_cast<int>(stream)];
  if (bytes.empty() || lost) return;
  mid_line_ = bytes.back() != '\n';
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd(stream), bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EAGAIN) {
      pollfd ready{fd(stream), POLLOUT, 0};
      ::poll(&ready, 1, 1000);
    } else if (errno != EINTR) {
      lost = true;
      return;
    }
  }
}

void Terminal::line(std::string_view text) {
  write(OutputStream::Err, fmt::format("{}{}\n", mid_line_ ? "\n" : "", text));
}

void Terminal::message(std::string_view text) { line(fmt::format("tandem launch: {}", text)); }
void Terminal::error(std::string_view text) { line(fmt::format("tandem: error: {}", text)); }

}  // namespace tandem
