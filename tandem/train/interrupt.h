// Ctrl-C and SIGTERM as a flag that the training loop reads between steps. A second Ctrl-C ends the process
// at once, as if nobody had listened; a second SIGTERM means nothing, since schedulers and launchers both
// send it.
#pragma once

namespace tandem {

class InterruptListener {
 public:
  InterruptListener();   // installs handlers for SIGINT and SIGTERM
  ~InterruptListener();  // puts the old ones back
  InterruptListener(const InterruptListener&) = delete;
  InterruptListener& operator=(const InterruptListener&) = delete;

  int signal() const;  // the signal that arrived, or 0
};

}  // namespace tandem
