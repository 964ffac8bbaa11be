// The launcher's own stdout and stderr, shared by the ranks that are shown there and by the launcher's
// messages, each of which gets a line of its own. A stream that nobody reads any more is given up; the
// ranks and their logs go on.
#pragma once

#include <string_view>

namespace tandem {

enum class OutputStream { Out, Err };

class Terminal {
 public:
  explicit Terminal(int out_fd = 1, int err_fd = 2) : fds_{out_fd, err_fd} {}

  void write(OutputStream stream, std::string_view bytes);
  void message(std::string_view text);  // "tandem launch: <text>" on stderr
  void error(std::string_view text);    // "tandem: error: <text>" on stderr
  void line(std::string_view text);     // <text> on stderr

  bool is_terminal(OutputStream stream) const;
  int fd(OutputStream stream) const { return fds_[static_cast<int>(stream)]; }

 private:
  int fds_[2];
  bool lost_[2] = {false, false};
  bool mid_line_ = false;
};

}  // namespace tandem
