#include "tandem/doctor/interfaces.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <fstream>
#include <memory>

#include "tandem/base/descriptor.h"

namespace tandem::doctor {
namespace {

// The first word of a small file of the kernel's; empty where there is none, or it cannot be read now (a
// link that is down has no speed).
std::string word_in(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

std::vector<std::filesystem::path> entries_of(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> paths;
  std::error_code none;  // a kernel without such devices has no such folder
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

// Asks an interface's driver; false where it has no answer.
template <typename Question>
bool ask_driver(int socket, const std::string& name, Question& question) {
  ifreq request{};
  name.copy(request.ifr_name, IFNAMSIZ - 1);
  request.ifr_data = reinterpret_cast<char*>(&question);
  return ::ioctl(socket, SIOCETHTOOL, &request) == 0;
}

Interface described(int socket, const std::string& name, unsigned flags) {
  Interface interface;
  interface.name = name;
  interface.loopback = (flags & IFF_LOOPBACK) != 0;
  interface.up = (flags & IFF_UP) != 0 && (flags & IFF_RUNNING) != 0;
  ifreq request{};
  name.copy(request.ifr_name, IFNAMSIZ - 1);
  if (::ioctl(socket, SIOCGIFMTU, &request) == 0) interface.mtu = request.ifr_mtu;
  ethtool_drvinfo driver{};
  driver.cmd = ETHTOOL_GDRVINFO;
  interface.physical = ask_driver(socket, name, driver) && driver.bus_info[0] != '\0' &&
                       std::string_view(driver.bus_info) != "N/A" &&
                       std::string_view(driver.bus_info) != "tap";
  ethtool_cmd settings{};
  settings.cmd = ETHTOOL_GSET;
  if (ask_driver(socket, name, settings)) {
    const uint32_t megabits = ethtool_cmd_speed(&settings);
    if (megabits > 0 && megabits < static_cast<uint32_t>(SPEED_UNKNOWN) && megabits != 0xffff)
      interface.bits_per_second = megabits * 1e6;
  }
  return interface;
}

}  // namespace

std::vector<Interface> read_interfaces() {
  std::vector<Interface> interfaces;
  ifaddrs* found = nullptr;
  const Descriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (socket.get() < 0 || ::getifaddrs(&found) != 0) return interfaces;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(found, &::freeifaddrs);
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    auto known = std::find_if(interfaces.begin(), interfaces.end(),
                              [&](const Interface& one) { return one.name == entry->ifa_name; });
    if (known == interfaces.end()) {
      interfaces.push_back(described(socket.get(), entry->ifa_name, entry->ifa_flags));
      known = interfaces.end() - 1;
    }
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    char text[INET_ADDRSTRLEN];
    const auto* address = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
    if (::inet_ntop(AF_INET, &address->sin_addr, text, sizeof(text)) != nullptr)
      known->addresses.emplace_back(text);
  }
  return interfaces;
}

std::vector<RdmaDevice> read_rdma_devices(const std::filesystem::path& tree) {
  std::vector<RdmaDevice> devices;
  for (const auto& path : entries_of(tree)) {
    RdmaDevice device;
    device.name = path.filename().string();
    std::error_code none;
    device.driver = std::filesystem::read_symlink(path / "device/driver", none).filename().string();
    for (const auto& port : entries_of(path / "ports"))  // "4: ACTIVE"
      device.active = device.active || word_in(port / "state") == "4:";
    devices.push_back(std::move(device));
  }
  return devices;
}

Choice choose_interface(const std::vector<Interface>& interfaces, const std::string& address,
                        const std::string& to) {
  for (const Interface& interface : interfaces) {
    if (interface.loopback || std::find(interface.addresses.begin(), interface.addresses.end(), address) ==
                                  interface.addresses.end())
      continue;
    return {interface.name, address, fmt::format("{} is this machine's end of the way to {}", address, to)};
  }
  return {"", "", "there is none but loopback: this machine reaches no other"};
}

std::vector<Setting> network_settings(const Choice& choice, const std::vector<RdmaDevice>& devices) {
  std::vector<Setting> settings;
  if (choice.interface.empty()) return settings;
  const std::string why = "the way that tandem's own connections take; without it each library guesses";
  settings.push_back({"NCCL_SOCKET_IFNAME", "=" + choice.interface, why});
  settings.push_back({"GLOO_SOCKET_IFNAME", choice.interface, why});
  std::vector<std::string> infiniband;
  bool efa = false;
  for (const RdmaDevice& device : devices) {
    if (!device.active) continue;
    if (device.driver == "efa") {
      efa = true;
    } else {
      infiniband.push_back(device.name);
    }
  }
  if (!infiniband.empty())
    settings.push_back({"NCCL_IB_HCA", fmt::format("={}", fmt::join(infiniband, ",")),
                        "these RDMA devices have a port that is active"});
  if (efa)
    settings.push_back(
        {"FI_PROVIDER", "efa", "this machine has EFA, which NCCL uses through the plugin aws-ofi-nccl"});
  return settings;
}

bool is_named(const std::string& list, const std::string& interface) {
  const bool all_but = list.starts_with('^');
  size_t at = all_but ? 1 : 0;
  const bool whole = list.substr(at).starts_with('=');
  at += whole ? 1 : 0;
  bool found = false;
  while (at <= list.size()) {
    const size_t comma = std::min(list.find(',', at), list.size());
    const std::string name = list.substr(at, comma - at);
    found = found || (!name.empty() && (whole ? interface == name : interface.starts_with(name)));
    at = comma + 1;
  }
  return found != all_but;
}

std::string format_bits(double bits_per_second) {
  const double gigabits = bits_per_second / 1e9;
  return gigabits >= 1 ? fmt::format("{:g} Gbit/s", gigabits) : fmt::format("{:g} Mbit/s", gigabits * 1e3);
}

}  // namespace tandem::doctor
