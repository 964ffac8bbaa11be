#include "tandem/train/interrupt.h"

#include <unistd.h>

#include <csignal>
#include <cstring>

#include "tandem/comm/launch_notes.h"

namespace tandem {
namespace {

volatile std::sig_atomic_t g_signal = 0;
struct sigaction g_old_int, g_old_term, g_old_hup, g_old_pipe;

void on_signal(int number) {
  g_signal = number;
  tell_interrupted(number);
  struct sigaction plain {};
  plain.sa_handler = SIG_DFL;
  sigaction(SIGINT, &plain, nullptr);
  plain.sa_handler = SIG_IGN;
  sigaction(SIGTERM, &plain, nullptr);
  sigaction(SIGHUP, &plain, nullptr);
}

}  // namespace

InterruptListener::InterruptListener() {
  g_signal = 0;
  prepare_to_tell_interrupted();
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigaction(SIGINT, &action, &g_old_int);
  sigaction(SIGTERM, &action, &g_old_term);
  sigaction(SIGHUP, nullptr, &g_old_hup);
  if (g_old_hup.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);  // nohup means to go on
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, &g_old_pipe);
}

InterruptListener::~InterruptListener() {
  sigaction(SIGINT, &g_old_int, nullptr);
  sigaction(SIGTERM, &g_old_term, nullptr);
  sigaction(SIGHUP, &g_old_hup, nullptr);
  sigaction(SIGPIPE, &g_old_pipe, nullptr);
}

int InterruptListener::signal() const { return g_signal; }

void InterruptListener::give_notice(const spot::Notice& notice) const {
  {
    const std::lock_guard lock(mutex_);
    if (notice_) return;
    notice_ = notice;
  }
  ::kill(::getpid(), SIGTERM);
}

std::optional<spot::Notice> InterruptListener::notice() const {
  const std::lock_guard lock(mutex_);
  return notice_;
}

}  // namespace tandem
