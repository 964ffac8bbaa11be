#include "tandem/launch/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tandem/base/error.h"

namespace tandem {

bool SignalReader::asks_to_stop(int signal) const {
  return signal == SIGINT || signal == SIGTERM || signal == SIGHUP ||
         std::find(more_.begin(), more_.end(), signal) != more_.end();
}

SignalReader::SignalReader(std::span<const int> more) : more_(more.begin(), more.end()) {
  sigset_t taken;
  sigemptyset(&taken);
  for (int signal : {SIGINT, SIGTERM, SIGCHLD, SIGWINCH}) sigaddset(&taken, signal);
  for (int signal : more_) {
    if (signal != SIGHUP) sigaddset(&taken, signal);
  }
  struct sigaction hangup {};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaddset(&taken, SIGHUP);  // a blocked signal arrives even where ignored
  pthread_sigmask(SIG_BLOCK, &taken, &outer_mask_);
  fd_ = ::signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd_ < 0) throw IoError("signals: signalfd failed: {}", std::strerror(errno));
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, &outer_pipe_);
}

// What is still waiting is thrown away: it was meant for ranks that are gone.
SignalReader::~SignalReader() {
  take();
  ::close(fd_);
  sigaction(SIGPIPE, &outer_pipe_, nullptr);
  pthread_sigmask(SIG_SETMASK, &outer_mask_, nullptr);
}

std::vector<int> SignalReader::take() {
  std::vector<int> signals;
  signalfd_siginfo info{};
  while (::read(fd_, &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info)))
    signals.push_back(static_cast<int>(info.ssi_signo));
  return signals;
}

}  // namespace tandem
