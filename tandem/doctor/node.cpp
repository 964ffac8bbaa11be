#include "tandem/doctor/node.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <regex>
#include <sstream>

#include "tandem/base/system.h"

namespace tandem::doctor {
namespace {

// What cannot be read is not there: a container shows less than a machine.
std::string text_in(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  std::string all = text.str();
  while (!all.empty() && (all.back() == '\n' || all.back() == ' ')) all.pop_back();
  return all;
}

// The number after "key:" in a file such as /proc/meminfo, in bytes.
int64_t kilobytes_in(const std::string& text, const std::string& key) {
  std::smatch match;
  const std::regex line("(?:^|\\n)[^\\n]*\\b" + key + ":\\s*([0-9]+) kB");
  return std::regex_search(text, match, line) ? std::stoll(match[1]) * 1024 : 0;
}

std::optional<int64_t> limit_of(__rlimit_resource resource) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return static_cast<int64_t>(limit.rlim_cur);
}

int usable_cores() {
  cpu_set_t set;
  return ::sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

// Of control groups of version 2 ("200000 100000", or "max 100000") and 1.
std::optional<double> quota(const std::filesystem::path& sys) {
  double most = 0, period = 0;
  std::istringstream both(text_in(sys / "fs/cgroup/cpu.max"));
  if (both >> most >> period && period > 0) return most / period;
  std::istringstream old_most(text_in(sys / "fs/cgroup/cpu/cpu.cfs_quota_us"));
  std::istringstream old_period(text_in(sys / "fs/cgroup/cpu/cpu.cfs_period_us"));
  if (old_most >> most && old_period >> period && most > 0 && period > 0) return most / period;
  return std::nullopt;
}

std::vector<NumaNode> numa_nodes(const std::filesystem::path& sys) {
  std::vector<NumaNode> nodes;
  for (int number = 0;; ++number) {
    const auto folder = sys / "devices/system/node" / fmt::format("node{}", number);
    const std::string cpus = text_in(folder / "cpulist");
    const std::string memory = text_in(folder / "meminfo");
    if (cpus.empty() && memory.empty()) return nodes;
    nodes.push_back({cpus, kilobytes_in(memory, "MemTotal")});
  }
}

int nvidia_devices(const std::filesystem::path& sys) {
  int count = 0;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(sys / "bus/pci/devices", none)) {
    const std::string kind = text_in(entry.path() / "class");  // 0x0300..: display, 0x0302..: 3D
    count += text_in(entry.path() / "vendor") == "0x10de" && kind.starts_with("0x03");
  }
  return count;
}

std::string driver_version(const std::filesystem::path& proc) {
  const std::string text = text_in(proc / "driver/nvidia/version");
  std::smatch match;
  static const std::regex version("Kernel Module[^\\n]*?\\s([0-9]+(\\.[0-9]+)+)");
  return std::regex_search(text, match, version) ? match[1].str() : "";
}

void read_shared_memory(Node& node) {
  struct statvfs info {};
  if (::statvfs("/dev/shm", &info) != 0) return;
  node.shm_bytes = static_cast<int64_t>(info.f_blocks) * static_cast<int64_t>(info.f_frsize);
  node.shm_free_bytes = static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
}

void read_clock(Node& node, const std::filesystem::path& sys) {
  node.clock_source = text_in(sys / "devices/system/clocksource/clocksource0/current_clocksource");
  node.unix_s = unix_s();
  timex state{};  // asked, not set
  const int answer = ::adjtimex(&state);
  node.clock_synchronised = answer >= 0 && answer != TIME_ERROR && (state.status & STA_UNSYNC) == 0;
}

bool resolves(const std::string& name) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(name.c_str(), nullptr, &wanted, &found) != 0) return false;
  ::freeaddrinfo(found);
  return true;
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

Node read_node(const Roots& roots) {
  Node node;
  node.name = hostname();
  utsname system{};
  if (::uname(&system) == 0) node.kernel = fmt::format("{} {}", system.sysname, system.release);
  node.processor = cpu_model();
  node.cores = usable_cores();
  node.cores_there = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  node.core_quota = quota(roots.sys);
  node.governor = text_in(roots.sys / "devices/system/cpu/cpu0/cpufreq/scaling_governor");
  node.numa = numa_nodes(roots.sys);
  const std::string memory = text_in(roots.proc / "meminfo");
  node.memory_bytes = total_memory_bytes();
  node.available_bytes = std::min(node.memory_bytes, kilobytes_in(memory, "MemAvailable"));
  node.swap_used_bytes = kilobytes_in(memory, "SwapTotal") - kilobytes_in(memory, "SwapFree");
  read_shared_memory(node);
  node.gpus_on_bus = nvidia_devices(roots.sys);
  node.driver = driver_version(roots.proc);
  node.limits = {limit_of(RLIMIT_NOFILE), limit_of(RLIMIT_MEMLOCK), limit_of(RLIMIT_NPROC),
                 limit_of(RLIMIT_FSIZE)};
  read_clock(node, roots.sys);
  node.interfaces = read_interfaces();
  node.rdma = read_rdma_devices(roots.sys / "class/infiniband");
  node.name_resolves = resolves(node.name);
  node.nccl_interface = variable("NCCL_SOCKET_IFNAME");
  node.gloo_interface = variable("GLOO_SOCKET_IFNAME");
  return node;
}

}  // namespace tandem::doctor
