// A node in words, and as JSON.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "tandem/base/quantity.h"
#include "tandem/base/utf8.h"
#include "tandem/doctor/node.h"

namespace tandem::doctor {
namespace {

using Json = nlohmann::ordered_json;

template <typename Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json(nullptr);
}

std::string row(const std::string& subject, const std::string& text) {
  return fmt::format("{:<10} {}\n", subject, text);
}

std::string rate(double bytes_per_s) { return fmt::format("{:.0f} MB/s", bytes_per_s / 1e6); }

std::string processor_text(const Node& node) {
  std::string text = fmt::format("{}, {}", printable(node.processor), count_of(node.cores, "core"));
  if (node.cores != node.cores_there) text += fmt::format(" of {}", node.cores_there);
  if (node.core_quota) text += fmt::format(" (a quota of {:g})", *node.core_quota);
  text += fmt::format(", {}, instructions {}", count_of(std::max<int64_t>(1, node.numa.size()), "NUMA node"),
                      node.program_isa);
  if (node.program_isa != node.best_isa) text += fmt::format(" (it has {})", node.best_isa);
  return text + (node.governor.empty() ? "" : fmt::format(", frequency {}", node.governor));
}

std::string gpu_text(const Node& node) {
  std::vector<std::string> names;
  for (const Gpu& gpu : node.gpus)
    names.push_back(fmt::format("{} {}", printable(gpu.name), format_bytes(gpu.memory_bytes)));
  std::string text = names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
  if (!node.driver.empty()) text += fmt::format(", driver {}", node.driver);
  return text + (node.has_cuda ? "" : ", and this program is built without CUDA");
}

std::string disk_text(const Node& node) {
  std::string text = fmt::format("{}: {} free", printable(node.folder), format_bytes(node.disk_free_bytes));
  if (!node.disk.problem.empty()) return text + ", " + node.disk.problem;
  text += fmt::format(", writes {}", rate(node.disk.write_bytes_per_s));
  return text +
         (node.disk.read_bytes_per_s > 0 ? fmt::format(", reads {}", rate(node.disk.read_bytes_per_s)) : "");
}

std::string limits_text(const Limits& limits) {
  const auto count = [](const std::optional<int64_t>& limit) {
    return limit ? std::to_string(*limit) : "unlimited";
  };
  const auto bytes = [](const std::optional<int64_t>& limit) {
    return limit ? format_bytes(*limit) : "unlimited";
  };
  return fmt::format("open files {}, processes {}, locked memory {}, file size {}", count(limits.open_files),
                     count(limits.processes), bytes(limits.locked_bytes), bytes(limits.file_bytes));
}

std::string interface_text(const Node& node, const Interface& interface) {
  std::string text = interface.name;
  if (!interface.addresses.empty()) text += fmt::format(" {}", fmt::join(interface.addresses, " "));
  text += interface.up ? "" : ", down";
  text += interface.bits_per_second ? ", " + format_bits(*interface.bits_per_second)
          : interface.loopback      ? ""
                                    : ", speed not told";
  text += fmt::format(", mtu {}", interface.mtu);
  return text + (interface.name == node.choice.interface ? "; chosen: " + node.choice.why : "");
}

std::string network_text(const Node& node) {
  std::string text;
  for (const Interface& interface : node.interfaces)
    text += row(text.empty() ? "network" : "", interface_text(node, interface));
  for (const RdmaDevice& device : node.rdma)
    text += row(
        "", fmt::format("{} ({}), RDMA, {}", device.name, device.driver, device.active ? "active" : "down"));
  if (node.choice.interface.empty()) text += row(text.empty() ? "network" : "", node.choice.why);
  bool first = true;
  for (const Setting& setting : network_settings(node.choice, node.rdma)) {
    text += row(first ? "settings" : "",
                fmt::format("{}={}  ({})", setting.variable, setting.value, setting.why));
    first = false;
  }
  return text;
}

Json network_json(const Node& node) {
  Json interfaces = Json::array(), rdma = Json::array(), settings = Json::object();
  for (const Interface& interface : node.interfaces)
    interfaces.push_back({{"name", interface.name},
                          {"addresses", interface.addresses},
                          {"up", interface.up},
                          {"loopback", interface.loopback},
                          {"physical", interface.physical},
                          {"bits_per_second", or_null(interface.bits_per_second)},
                          {"mtu", interface.mtu}});
  for (const RdmaDevice& device : node.rdma)
    rdma.push_back({{"name", device.name}, {"driver", device.driver}, {"active", device.active}});
  for (const Setting& setting : network_settings(node.choice, node.rdma))
    settings[setting.variable] = setting.value;
  return {
      {"interfaces", interfaces},
      {"rdma", rdma},
      {"chosen",
       {{"interface", node.choice.interface}, {"address", node.choice.address}, {"why", node.choice.why}}},
      {"settings", settings}};
}

}  // namespace

Json to_json(const Node& node) {
  Json numa = Json::array(), gpus = Json::array();
  for (const NumaNode& one : node.numa)
    numa.push_back({{"cpus", one.cpus}, {"memory_bytes", one.memory_bytes}});
  for (const Gpu& gpu : node.gpus) gpus.push_back({{"name", gpu.name}, {"memory_bytes", gpu.memory_bytes}});
  return {
      {"name", node.name},
      {"kernel", node.kernel},
      {"version", node.version},
      {"processor",
       {{"name", node.processor},
        {"cores", node.cores},
        {"cores_there", node.cores_there},
        {"quota", or_null(node.core_quota)},
        {"isa", node.program_isa},
        {"best_isa", node.best_isa},
        {"governor", node.governor},
        {"numa", numa}}},
      {"memory",
       {{"bytes", node.memory_bytes},
        {"available_bytes", node.available_bytes},
        {"swap_used_bytes", node.swap_used_bytes},
        {"shm_bytes", node.shm_bytes},
        {"shm_free_bytes", node.shm_free_bytes}}},
      {"gpus", gpus},
      {"gpus_on_bus", node.gpus_on_bus},
      {"driver", node.driver},
      {"cuda", node.has_cuda},
      {"disk",
       {{"folder", node.folder},
        {"free_bytes", node.disk_free_bytes},
        {"write_bytes_per_s", node.disk.write_bytes_per_s},
        {"read_bytes_per_s", node.disk.read_bytes_per_s},
        {"problem", node.disk.problem}}},
      {"limits",
       {{"open_files", or_null(node.limits.open_files)},
        {"locked_bytes", or_null(node.limits.locked_bytes)},
        {"processes", or_null(node.limits.processes)},
        {"file_bytes", or_null(node.limits.file_bytes)}}},
      {"clock",
       {{"source", node.clock_source}, {"synchronised", node.clock_synchronised}, {"unix_s", node.unix_s}}},
      {"network", network_json(node)}};
}

std::string node_text(const Node& node) {
  std::string text =
      row("node", fmt::format("{}, {}, tandem {}", printable(node.name), node.kernel, node.version));
  text += row("processor", processor_text(node));
  if (node.numa.size() > 1) {
    for (const NumaNode& one : node.numa)
      text += row("", fmt::format("cpus {}, {}", one.cpus, format_bytes(one.memory_bytes)));
  }
  text += row("memory", fmt::format("{}, {} available; /dev/shm {} of {} free",
                                    format_bytes(node.memory_bytes), format_bytes(node.available_bytes),
                                    format_bytes(node.shm_free_bytes), format_bytes(node.shm_bytes)));
  text += row("gpus", gpu_text(node));
  text += row("disk", disk_text(node));
  text += row("limits", limits_text(node.limits));
  text +=
      row("clock", fmt::format("{}, {}", node.clock_source.empty() ? "source not told" : node.clock_source,
                               node.clock_synchronised ? "synchronised" : "not synchronised"));
  return text + network_text(node);
}

}  // namespace tandem::doctor
