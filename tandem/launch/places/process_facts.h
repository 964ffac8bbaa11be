// What the kernel tells of a process: /proc/PID and its threads.
#pragma once

#include <sys/types.h>

#include <map>
#include <nlohmann/json_fwd.hpp>

namespace tandem {

struct ProcessFacts {
  char state = '?';  // R, S, D, T (stopped), t (a debugger holds it), Z
  // By thread: seconds in which it could have run and no core was free.
  std::map<pid_t, double> starved_s;
};
ProcessFacts process_facts(pid_t pid);

// Of each thread: name, state, wchan, system call, and the kernel's stack where this user may see it.
nlohmann::json thread_stacks(pid_t pid);

double load_per_core();  // of this machine, over the last minute

}  // namespace tandem
