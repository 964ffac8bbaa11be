// Signals as bytes on a file descriptor, so that one poll waits for them, for output and for other nodes.
// While it lives: SIGINT, SIGTERM, SIGHUP (unless ignored, as under nohup), SIGCHLD and SIGWINCH arrive here
// alone, and a closed pipe is an error of write, not a death.
#pragma once

#include <csignal>
#include <span>
#include <vector>

namespace tandem {

class SignalReader {
 public:
  // Before any thread is started: threads inherit what is blocked. `more` are taken as requests to stop, too.
  explicit SignalReader(std::span<const int> more = {});
  ~SignalReader();
  SignalReader(const SignalReader&) = delete;
  SignalReader& operator=(const SignalReader&) = delete;

  int fd() const { return fd_; }
  std::vector<int> take();  // those that have arrived; none is fine

  bool asks_to_stop(int signal) const;  // SIGINT, SIGTERM, SIGHUP or one of those more

  // What a started program must have again.
  const sigset_t& outer_mask() const { return outer_mask_; }

 private:
  int fd_ = -1;
  sigset_t outer_mask_;
  struct sigaction outer_pipe_ {};
  std::vector<int> more_;
};

}  // namespace tandem
