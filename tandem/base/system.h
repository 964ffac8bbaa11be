// What the machine and this process look like from outside: name, processor, memory, disk, clock.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

namespace tandem {

// Seconds on the clock that never goes back. Only differences mean anything.
inline double steady_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Seconds since 1970 on the wall's clock, which may be set back.
inline double unix_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string own_program();  // the path of the program that runs, for starting it again
std::string hostname();
// Where the number of a process means the same process: this machine since its start, and the processes that
// see each other. Hosts may have the same name. Without blanks; empty where it cannot be told.
std::string process_space();
std::string cpu_model();             // as the kernel names it, e.g. "AMD EPYC 9R14"
int64_t total_memory_bytes();        // RAM this process may use: the machine's, or its cgroup's limit
std::string hardware_description();  // "AMD EPYC 9R14, 2 cores, 15.6 GiB"

int64_t rss_bytes();       // resident now
int64_t peak_rss_bytes();  // the most ever resident

// Bytes an unprivileged process may still write at `path`, which must exist.
int64_t free_disk_bytes(const std::filesystem::path& path);

std::string utc_time();  // now, ISO 8601 with milliseconds: "2026-01-31T23:59:59.123Z"

}  // namespace tandem
