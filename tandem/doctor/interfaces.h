// The network interfaces of this machine, which of them connections between nodes take, and what NCCL and
// Gloo are told so that they take the same.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace tandem::doctor {

struct Interface {
  std::string name;                    // "eth0"
  std::vector<std::string> addresses;  // IPv4
  bool up = false;
  bool loopback = false;
  bool physical = false;                  // a device stands behind it: no bridge, no tunnel
  std::optional<double> bits_per_second;  // as its driver says; virtual ones mostly say nothing
  int mtu = 0;
};

// Asked of the kernel and not read from /sys, which in a container may be that of another network.
std::vector<Interface> read_interfaces();

struct RdmaDevice {
  std::string name;    // "mlx5_0"
  std::string driver;  // "mlx5_core", "efa"
  bool active = false;
};
std::vector<RdmaDevice> read_rdma_devices(const std::filesystem::path& tree);  // /sys/class/infiniband

struct Choice {
  std::string interface;  // empty: none but loopback
  std::string address;
  std::string why;
};
// The interface that has `address`, which is this machine's end of the way `to` somewhere.
Choice choose_interface(const std::vector<Interface>& interfaces, const std::string& address,
                        const std::string& to);

// Variables that make NCCL and Gloo go the way of `choice`, each with the reason.
struct Setting {
  std::string variable, value, why;
};
std::vector<Setting> network_settings(const Choice& choice, const std::vector<RdmaDevice>& devices);

// Whether a list as NCCL_SOCKET_IFNAME has it takes this interface: "eth,ib" are beginnings of names, "=eth0"
// whole ones, "^docker" all but these.
bool is_named(const std::string& list, const std::string& interface);

std::string format_bits(double bits_per_second);  // "25 Gbit/s"

}  // namespace tandem::doctor
