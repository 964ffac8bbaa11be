#include "tandem/launch/places/process_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <system_error>

#include "tandem/base/thread_pool.h"

namespace tandem {
namespace {

constexpr size_t kMostThreads = 64;  // of a process, that are looked at

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The state follows the name, which is in parentheses and may hold anything.
char state_in(const std::string& stat) {
  const size_t end = stat.rfind(')');
  return end != std::string::npos && end + 2 < stat.size() ? stat[end + 2] : '?';
}

std::vector<pid_t> threads_of(pid_t pid) {
  std::vector<pid_t> threads;
  std::error_code error;
  for (std::filesystem::directory_iterator it(fmt::format("/proc/{}/task", pid), error), end;
       !error && it != end && threads.size() < kMostThreads; it.increment(error))
    threads.push_back(static_cast<pid_t>(std::atoi(it->path().filename().c_str())));
  return threads;
}

}  // namespace

ProcessFacts process_facts(pid_t pid) {
  ProcessFacts facts;
  facts.state = state_in(first_line(fmt::format("/proc/{}/stat", pid)));
  for (const pid_t thread : threads_of(pid)) {
    std::istringstream line(first_line(fmt::format("/proc/{}/task/{}/schedstat", pid, thread)));
    uint64_t ran = 0, waited = 0;
    if (line >> ran >> waited) facts.starved_s[thread] = 1e-9 * static_cast<double>(waited);
  }
  return facts;
}

nlohmann::json thread_stacks(pid_t pid) {
  nlohmann::json threads = nlohmann::json::array();
  for (const pid_t thread : threads_of(pid)) {
    const std::string at = fmt::format("/proc/{}/task/{}/", pid, thread);
    nlohmann::json entry = {{"thread", thread},
                            {"name", first_line(at + "comm")},
                            {"state", std::string(1, state_in(first_line(at + "stat")))},
                            {"wchan", first_line(at + "wchan")},
                            {"syscall", first_line(at + "syscall")},
                            {"stack", nlohmann::json::array()}};
    std::ifstream stack(at + "stack");
    for (std::string line; std::getline(stack, line);) entry["stack"].push_back(line);
    threads.push_back(std::move(entry));
  }
  return threads;
}

double load_per_core() {
  double load = 0;
  return ::getloadavg(&load, 1) == 1 ? load / std::max(1, num_cores()) : 0;
}

}  // namespace tandem
