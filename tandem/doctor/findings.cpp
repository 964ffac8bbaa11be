#include "tandem/doctor/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tandem/base/quantity.h"
#include "tandem/base/utf8.h"

namespace tandem::doctor {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20, kGiB = int64_t{1} << 30;
constexpr double kNewYear2024 = 1704067200;  // no machine with this program has an earlier date
constexpr int64_t kShmPerGpu = 32 * kMiB;    // what NCCL takes of /dev/shm for a GPU, generously

class Findings {
 public:
  void breaks(std::string about, std::string what, std::string advice) {
    list.push_back({true, std::move(about), std::move(what), std::move(advice)});
  }
  void slows(std::string about, std::string what, std::string advice) {
    list.push_back({false, std::move(about), std::move(what), std::move(advice)});
  }
  std::vector<Finding> list;
};

void check_processor(const Node& node, Findings& found) {
  if (node.program_isa != node.best_isa)
    found.slows("processor", fmt::format("uses {} though it has {}", node.program_isa, node.best_isa),
                "unset TANDEM_ISA");
  if (node.core_quota && *node.core_quota < node.cores)
    found.slows("processor",
                fmt::format("{} are seen, but a control group gives {:g} of their time",
                            count_of(node.cores, "core"), *node.core_quota),
                fmt::format("set threads to {}, or raise the container's CPU limit",
                            std::max(1, static_cast<int>(*node.core_quota))));
  if (node.governor == "powersave")
    found.slows("processor", "the frequency is chosen to save power",
                "as root: cpupower frequency-set -g performance");
  if (node.numa.size() > 1)
    found.slows(
        "processor",
        fmt::format("memory is in {} NUMA nodes, and a rank that runs on all of them waits for the far ones",
                    node.numa.size()),
        "start a rank for each and bind it with numactl (docs/launch.md)");
}

void check_memory(const Node& node, Findings& found) {
  if (node.memory_bytes > 0 && node.available_bytes < node.memory_bytes / 10)
    found.slows("memory",
                fmt::format("{} of {} are available", format_bytes(node.available_bytes),
                            format_bytes(node.memory_bytes)),
                "end other programs, or see with `tandem plan` whether it is enough");
  if (node.swap_used_bytes > kGiB)
    found.slows("memory", fmt::format("{} are swapped out", format_bytes(node.swap_used_bytes)),
                "end other programs; a step that is swapped out waits for the disk");
}

void check_gpus(const Node& node, Findings& found) {
  const auto seen = static_cast<int>(node.gpus.size());
  if (seen < node.gpus_on_bus && node.has_cuda) {
    const std::string what =
        fmt::format("{} on the PCI bus, CUDA sees {}", count_of(node.gpus_on_bus, "NVIDIA GPU"), seen);
    if (node.driver.empty()) {
      found.breaks("gpus", what + ", and no driver is loaded",
                   "install NVIDIA's driver; nvidia-smi shows it");
    } else {
      found.breaks("gpus", what,
                   "look at nvidia-smi, CUDA_VISIBLE_DEVICES, and the devices that the container was given");
    }
  }
  if (node.gpus_on_bus > 0 && !node.has_cuda)
    found.slows("gpus", "there are GPUs, and this program is built without CUDA",
                "build it with scripts/build");
  if (seen > 1 && node.shm_bytes < seen * kShmPerGpu)
    found.breaks(
        "memory",
        fmt::format("/dev/shm has {}, which NCCL needs for {} GPUs", format_bytes(node.shm_bytes), seen),
        "give the container more: --shm-size 8g, or `tandem submit --kubernetes --shm 8Gi`");
}

void check_disk(const Node& node, Findings& found) {
  if (!node.disk.problem.empty()) {
    found.breaks("disk", fmt::format("{}: {}", printable(node.folder), node.disk.problem),
                 "start where runs may be written, or name it with --run-dir");
    return;
  }
  if (node.disk_free_bytes < kGiB)
    found.breaks("disk",
                 fmt::format("{}: {} are free", printable(node.folder), format_bytes(node.disk_free_bytes)),
                 "make room: a checkpoint of a parameter takes 12 bytes and more");
  if (node.disk.write_bytes_per_s < 100e6)
    found.slows("disk",
                fmt::format("{}: takes {:.1f} MB a second", printable(node.folder),
                            node.disk.write_bytes_per_s / 1e6),
                "save on a local disk and copy to a store behind training (checkpoint.store)");
}

void check_limits(const Node& node, Findings& found) {
  const Limits& limits = node.limits;
  // A rank keeps two connections to every other one for each axis, and its files.
  if (limits.open_files && *limits.open_files < 256) {
    found.breaks("limits", fmt::format("{} files may be open at a time", *limits.open_files),
                 "ulimit -n 65536");
  } else if (limits.open_files && *limits.open_files < 4096) {
    found.slows("limits",
                fmt::format("{} files may be open at a time, which is enough for some {} ranks",
                            *limits.open_files, (*limits.open_files - 64) / 8),
                "ulimit -n 65536 before a larger run");
  }
  if (limits.processes && *limits.processes < 4 * node.cores + 64)
    found.breaks("limits", fmt::format("this user may have {} threads", *limits.processes),
                 "ulimit -u unlimited");
  if (limits.file_bytes)
    found.breaks("limits", fmt::format("no file may have more than {}", format_bytes(*limits.file_bytes)),
                 "ulimit -f unlimited");
  const bool uses_rdma =
      std::any_of(node.rdma.begin(), node.rdma.end(), [](const auto& device) { return device.active; });
  if (uses_rdma && limits.locked_bytes && *limits.locked_bytes < kGiB)
    found.breaks("limits",
                 fmt::format("{} of memory may be locked, and RDMA locks what it sends",
                             format_bytes(*limits.locked_bytes)),
                 "ulimit -l unlimited (limits.conf: memlock; Slurm: PropagateResourceLimitsExcept=MEMLOCK)");
}

void check_clock(const Node& node, Findings& found) {
  if (node.unix_s < kNewYear2024) {
    found.breaks("clock", "it is set to a time long gone, and TLS and S3 refuse that",
                 "set it: chronyd -q, or date -s");
  } else if (!node.clock_synchronised) {
    found.slows("clock", "nobody keeps it right, and times of several nodes cannot be compared",
                "run chrony or systemd-timesyncd");
  }
  const bool fast = node.clock_source.empty() || node.clock_source == "tsc" ||
                    node.clock_source == "kvm-clock" || node.clock_source == "arch_sys_counter" ||
                    node.clock_source.starts_with("hyperv");
  if (!fast)
    found.slows("clock",
                fmt::format("its source is {}: each look at it is a call of the kernel's", node.clock_source),
                "start the kernel with clocksource=tsc where the processor's is stable");
}

// What the environment says of interfaces, where none that is up has such a name.
void check_named(const Node& node, const std::string& variable, const std::string& list, Findings& found) {
  if (list.empty()) return;
  const bool any =
      std::any_of(node.interfaces.begin(), node.interfaces.end(), [&](const Interface& interface) {
        return interface.up && !interface.loopback && is_named(list, interface.name);
      });
  if (!any)
    found.breaks("network", fmt::format("{}={} names no interface that is up", variable, printable(list)),
                 node.choice.interface.empty() ? fmt::format("unset {}", variable)
                                               : fmt::format("{}={}", variable, node.choice.interface));
}

void check_network(const Node& node, Findings& found) {
  const Interface* chosen = nullptr;
  const Interface* fastest = nullptr;
  for (const Interface& interface : node.interfaces) {
    if (interface.loopback && !interface.up)
      found.breaks("network", fmt::format("{} is down, and ranks of one machine meet there", interface.name),
                   fmt::format("as root: ip link set {} up", interface.name));
    if (interface.name == node.choice.interface) chosen = &interface;
    const bool usable =
        interface.up && interface.physical && interface.bits_per_second && !interface.addresses.empty();
    if (usable && (fastest == nullptr || *interface.bits_per_second > *fastest->bits_per_second))
      fastest = &interface;
  }
  check_named(node, "NCCL_SOCKET_IFNAME", node.nccl_interface, found);
  check_named(node, "GLOO_SOCKET_IFNAME", node.gloo_interface, found);
  if (!node.name_resolves)
    found.slows("network", fmt::format("nobody knows the name {} here", printable(node.name)),
                "add it to /etc/hosts, or name this node by its address");
  if (chosen == nullptr) return;
  if (fastest != nullptr && fastest != chosen && chosen->bits_per_second &&
      *chosen->bits_per_second < *fastest->bits_per_second)
    found.slows("network",
                fmt::format("ranks go over {} with {}, and {} has {}", chosen->name,
                            format_bits(*chosen->bits_per_second), fastest->name,
                            format_bits(*fastest->bits_per_second)),
                fmt::format("name node 0 by its address in the network of {} (here {})", fastest->name,
                            fastest->addresses.front()));
  if (chosen->mtu > 0 && chosen->mtu < 1280)
    found.slows(
        "network", fmt::format("{} sends {} bytes at a time", chosen->name, chosen->mtu),
        fmt::format("as root: ip link set {} mtu 1500, or 9000 where all of the way takes it", chosen->name));
}

}  // namespace

std::vector<Finding> find_problems(const Node& node) {
  Findings found;
  check_processor(node, found);
  check_memory(node, found);
  check_gpus(node, found);
  check_disk(node, found);
  check_limits(node, found);
  check_clock(node, found);
  check_network(node, found);
  std::stable_sort(found.list.begin(), found.list.end(),
                   [](const Finding& a, const Finding& b) { return a.breaks && !b.breaks; });
  return found.list;
}

bool any_breaks(const std::vector<Finding>& findings) {
  return std::any_of(findings.begin(), findings.end(), [](const Finding& finding) { return finding.breaks; });
}

nlohmann::ordered_json to_json(const std::vector<Finding>& findings) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Finding& finding : findings)
    list.push_back({{"severity", finding.breaks ? "breaks" : "slows"},
                    {"about", finding.about},
                    {"what", finding.what},
                    {"do", finding.advice}});
  return list;
}

std::string findings_text(const std::vector<Finding>& findings) {
  if (findings.empty()) return "nothing is wrong\n";
  std::string text;
  for (const Finding& finding : findings)
    text += fmt::format("{:<7} {}: {}; {}\n", finding.breaks ? "breaks" : "slows", finding.about,
                        finding.what, finding.advice);
  return text;
}

}  // namespace tandem::doctor
