// Starting programs whose output is read. Each is the leader of a process group of its own, so that it can
// be stopped with everything it started, reads nothing (stdin is /dev/null), and dies with the launcher,
// however that ends: the kernel sees to it (PR_SET_PDEATHSIG).
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <span>
#include <string>
#include <vector>

namespace tandem {

struct ChildSetup {
  std::vector<std::string> program;
  std::vector<std::string> environment;
  // Give it a pseudo terminal in place of a pipe, of the size of this one: it then draws as it would there.
  int out_terminal = -1;
  int err_terminal = -1;
};

struct Child {
  pid_t pid = 0;
  int out = -1;  // non-blocking; the caller closes both
  int err = -1;
};

// Must be called by the launcher's main thread, with whose end the children die. Either all run or, where one
// cannot be started, none does, and a ConfigError names the program.
std::vector<Child> start_children(std::span<const ChildSetup> setups, const sigset_t& signal_mask);

void copy_terminal_size(int from, int to);

}  // namespace tandem
