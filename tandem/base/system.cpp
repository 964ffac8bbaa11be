#include "tandem/base/system.h"

#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <ctime>
#include <fstream>
#include <optional>
#include <string_view>

#include "tandem/base/error.h"
#include "tandem/base/quantity.h"
#include "tandem/base/thread_pool.h"

namespace tandem {
namespace {

// The text after "key   :" of the first such line of a /proc file.
std::optional<std::string> proc_field(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const size_t start = line.find_first_not_of(" \t", colon + 1);
    return start == std::string::npos ? std::string() : line.substr(start);
  }
  return std::nullopt;
}

std::optional<int64_t> leading_number(std::string_view text) {
  int64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc()) return std::nullopt;
  return value;
}

// Fields of /proc/self/status are in kB whatever the page size.
int64_t status_bytes(std::string_view key) {
  const auto field = proc_field("/proc/self/status", key);
  const auto kilobytes = field ? leading_number(*field) : std::nullopt;
  if (!kilobytes)
    throw IoError("/proc/self/status: expected a line '{}', found none; is /proc mounted?", key);
  return *kilobytes * 1024;
}

}  // namespace

std::string own_program() {
  std::error_code problem;
  const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", problem);
  if (problem) throw IoError("/proc/self/exe: cannot be read: {}; is /proc mounted?", problem.message());
  return path.string();
}

std::string hostname() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

std::string process_space() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::error_code error;
  const std::string processes = std::filesystem::read_symlink("/proc/self/ns/pid", error).string();
  if (!(file >> boot) || error) return "";
  return boot + "/" + processes;
}

std::string cpu_model() { return proc_field("/proc/cpuinfo", "model name").value_or("unknown processor"); }

int64_t total_memory_bytes() {
  struct sysinfo info {};
  if (::sysinfo(&info) != 0)
    throw IoError("sysinfo: cannot read the size of memory: {}", std::strerror(errno));
  int64_t bytes = static_cast<int64_t>(info.totalram) * info.mem_unit;
  for (const char* limit_file :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::ifstream file(limit_file);
    std::string text;
    if (!(file >> text)) continue;
    if (const auto limit = leading_number(text)) bytes = std::min(bytes, *limit);  // "max": no limit
  }
  return bytes;
}

std::string hardware_description() {
  const int cores = num_cores();
  return fmt::format("{}, {} core{}, {}", cpu_model(), cores, cores == 1 ? "" : "s",
                     format_bytes(total_memory_bytes()));
}

int64_t rss_bytes() { return status_bytes("VmRSS"); }

int64_t peak_rss_bytes() { return status_bytes("VmHWM"); }

int64_t free_disk_bytes(const std::filesystem::path& path) {
  struct statvfs info {};
  if (::statvfs(path.c_str(), &info) != 0) {
    throw IoError("{}: cannot read the free disk space: {}", path.string(), std::strerror(errno));
  }
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
}

std::string utc_time() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  const std::time_t seconds = milliseconds / 1000;
  std::tm date{};
  ::gmtime_r(&seconds, &date);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &date);
  return fmt::format("{}.{:03}Z", text.data(), milliseconds % 1000);
}

}  // namespace tandem
