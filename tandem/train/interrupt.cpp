#include "tandem/train/interrupt.h"

#include <csignal>
#include <cstring>

namespace tandem {
namespace {

volatile std::sig_atomic_t g_signal = 0;
struct sigaction g_old_int, g_old_term;

void on_signal(int number) {
  g_signal = number;
  struct sigaction plain {};
  plain.sa_handler = SIG_DFL;
  sigaction(SIGINT, &plain, nullptr);
  plain.sa_handler = SIG_IGN;
  sigaction(SIGTERM, &plain, nullptr);
}

}  // namespace

InterruptListener::InterruptListener() {
  g_signal = 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigaction(SIGINT, &action, &g_old_int);
  sigaction(SIGTERM, &action, &g_old_term);
}

InterruptListener::~InterruptListener() {
  sigaction(SIGINT, &g_old_int, nullptr);
  sigaction(SIGTERM, &g_old_term, nullptr);
}

int InterruptListener::signal() const { return g_signal; }

}  // namespace tandem
