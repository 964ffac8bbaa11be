// Ctrl-C, SIGTERM and SIGHUP (the terminal has gone; not under nohup) as a flag that the training loop reads
// between steps. A second Ctrl-C ends the process at once, as if nobody had listened; a second SIGTERM means
// nothing, since schedulers and launchers both send it. A log that nobody reads any more (SIGPIPE) is no
// reason to stop.
#pragma once

#include <mutex>
#include <optional>

#include "tandem/watch/spot/notice.h"

namespace tandem {

class InterruptListener {
 public:
  InterruptListener();   // installs handlers
  ~InterruptListener();  // puts the old ones back
  InterruptListener(const InterruptListener&) = delete;
  InterruptListener& operator=(const InterruptListener&) = delete;

  int signal() const;  // the signal that arrived, or 0

  // A notice counts as SIGTERM would; what it says and when it ends is kept beside it. Any thread may give
  // one; the first counts.
  void give_notice(const spot::Notice& notice) const;
  std::optional<spot::Notice> notice() const;

 private:
  mutable std::mutex mutex_;
  mutable std::optional<spot::Notice> notice_;
};

}  // namespace tandem
