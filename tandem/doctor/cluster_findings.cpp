#include "tandem/doctor/cluster_findings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "tandem/base/quantity.h"
#include "tandem/base/utf8.h"

namespace tandem::doctor {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kSlowShare = 0.5;
constexpr double kClockOff_s = 1, kClockWrong_s = 300;  // signatures of S3 and tokens are minutes wide

std::string link_rate(double bytes_per_s) {
  return bytes_per_s >= 1e8 ? fmt::format("{:.0f} MB/s", bytes_per_s / 1e6)
                            : fmt::format("{:.2g} MB/s", bytes_per_s / 1e6);
}

std::string end_of(const ClusterNode& node) {
  if (node.address.empty() || node.name.find(node.address) != std::string::npos) return printable(node.name);
  return fmt::format("{} ({})", printable(node.name), node.address);
}

// A node to or from which every link is slow is what has to be looked at.
void find_slow(const Cluster& cluster, std::vector<Finding>& found) {
  const std::vector<SlowLink> slow = slow_links(cluster.links);
  const size_t others = cluster.nodes.size() - 1;
  for (const SlowLink& link : slow)
    found.push_back(
        {false, "link",
         fmt::format("from {} to {}: {}, where {} is usual", end_of(cluster.nodes[link.from]),
                     end_of(cluster.nodes[link.to]), link_rate(link.bytes_per_s), link_rate(link.usual)),
         "look at cables, ports and limiters between these two"});
  for (size_t node = 0; others > 1 && node < cluster.nodes.size(); ++node) {
    const auto from =
        std::count_if(slow.begin(), slow.end(), [&](const auto& link) { return link.from == int(node); });
    const auto to =
        std::count_if(slow.begin(), slow.end(), [&](const auto& link) { return link.to == int(node); });
    if (from < static_cast<std::ptrdiff_t>(others) && to < static_cast<std::ptrdiff_t>(others)) continue;
    found.push_back(
        {false, "node",
         fmt::format("all that {} {} is slow", end_of(cluster.nodes[node]), from < to ? "receives" : "sends"),
         "look at its own interface, cable and port; or leave it out"});
  }
}

void find_clocks(const Cluster& cluster, std::vector<Finding>& found) {
  for (size_t i = 1; i < cluster.nodes.size(); ++i) {
    const double off = cluster.links[0][i].clock_s;
    if (std::abs(off) < kClockOff_s) continue;
    found.push_back({std::abs(off) > kClockWrong_s, "clock",
                     fmt::format("that of {} is {} {} that of {}", end_of(cluster.nodes[i]),
                                 format_duration(std::abs(off)), off > 0 ? "ahead of" : "behind",
                                 end_of(cluster.nodes[0])),
                     "run chrony or systemd-timesyncd on both"});
  }
}

// Nodes by what they have of something; nothing where all have the same.
std::string by_value(const std::vector<std::pair<std::string, std::string>>& values) {
  std::map<std::string, std::vector<std::string>> nodes;
  for (const auto& [node, value] : values) nodes[value].push_back(node);
  if (nodes.size() < 2) return "";
  std::vector<std::string> parts;
  for (const auto& [value, names] : nodes)
    parts.push_back(fmt::format("{} on {}", value, fmt::join(names, ", ")));
  return fmt::format("{}", fmt::join(parts, "; "));
}

void find_differences(const Cluster& cluster, std::vector<Finding>& found) {
  std::vector<Json> nodes;
  for (const ClusterNode& node : cluster.nodes) nodes.push_back(Json::parse(node.node_json));
  const auto differ = [&](const std::function<std::string(const Json&)>& value) {
    std::vector<std::pair<std::string, std::string>> values;
    for (size_t i = 0; i < nodes.size(); ++i)
      values.emplace_back(printable(cluster.nodes[i].name), value(nodes[i]));
    return by_value(values);
  };
  if (const auto text = differ([](const Json& node) { return node["version"].get<std::string>(); });
      !text.empty())
    found.push_back({true, "nodes", "different versions of tandem: " + text, "install one on all of them"});
  if (const auto text = differ([](const Json& node) { return node["processor"]["isa"].get<std::string>(); });
      !text.empty())
    found.push_back({false, "nodes", "different instructions, and so other bits and speeds: " + text,
                     "set TANDEM_ISA to the lowest of them on all, or take machines of one kind"});
  const auto gpus = [](const Json& node) {
    std::map<std::string, int> count;
    for (const Json& gpu : node["gpus"]) ++count[gpu["name"].get<std::string>()];
    std::vector<std::string> parts;
    for (const auto& [name, number] : count) parts.push_back(fmt::format("{} x {}", number, name));
    return parts.empty() ? "no GPU" : fmt::format("{}", fmt::join(parts, " and "));
  };
  if (const auto text = differ(gpus); !text.empty())
    found.push_back(
        {false, "nodes", "different GPUs: " + text, "the slowest sets the pace: take machines of one kind"});
  if (const auto text = differ(
          [](const Json& node) { return count_of(node["processor"]["cores"].get<int64_t>(), "core"); });
      !text.empty())
    found.push_back({false, "nodes", "different numbers of cores: " + text, "the slowest sets the pace"});
}

// Numbers in columns under the nodes' names.
std::string table(const Cluster& cluster, const std::function<std::string(const Link&)>& cell) {
  size_t width = 0;
  for (const ClusterNode& node : cluster.nodes) width = std::max(width, node.name.size());
  width = std::max<size_t>(width, 8) + 2;
  std::string text = fmt::format("{:<{}}", "", width);
  for (const ClusterNode& node : cluster.nodes) text += fmt::format("{:>{}}", printable(node.name), width);
  for (size_t from = 0; from < cluster.nodes.size(); ++from) {
    text += fmt::format("\n{:<{}}", printable(cluster.nodes[from].name), width);
    for (size_t to = 0; to < cluster.nodes.size(); ++to)
      text += fmt::format("{:>{}}", from == to ? "-" : cell(cluster.links[from][to]), width);
  }
  return text + "\n";
}

}  // namespace

double usual_rate(const LinkTable& links) {
  std::vector<double> rates;
  for (size_t from = 0; from < links.size(); ++from) {
    for (size_t to = 0; to < links.size(); ++to) {
      if (from != to) rates.push_back(links[from][to].bytes_per_s);
    }
  }
  if (rates.empty()) return 0;
  std::sort(rates.begin(), rates.end());
  return rates[std::min(rates.size() - 1, rates.size() * 3 / 4)];
}

std::vector<SlowLink> slow_links(const LinkTable& links) {
  const double usual = usual_rate(links);
  std::vector<SlowLink> slow;
  for (size_t from = 0; from < links.size(); ++from) {
    for (size_t to = 0; to < links.size(); ++to) {
      const double here = links[from][to].bytes_per_s;
      if (from != to && here < kSlowShare * usual)
        slow.push_back({static_cast<int>(from), static_cast<int>(to), here, usual});
    }
  }
  std::stable_sort(slow.begin(), slow.end(),
                   [](const SlowLink& a, const SlowLink& b) { return a.bytes_per_s < b.bytes_per_s; });
  return slow;
}

std::vector<Finding> find_problems(const Cluster& cluster) {
  std::vector<Finding> found;
  find_differences(cluster, found);
  find_clocks(cluster, found);
  find_slow(cluster, found);
  return found;
}

Json to_json(const Cluster& cluster) {
  Json nodes = Json::array(), rates = Json::array(), latencies = Json::array(), clocks = Json::array(),
       slow = Json::array();
  for (size_t i = 0; i < cluster.nodes.size(); ++i) {
    const ClusterNode& node = cluster.nodes[i];
    nodes.push_back({{"rank", node.rank},
                     {"name", node.name},
                     {"address", node.address},
                     {"node", Json::parse(node.node_json)},
                     {"findings", Json::parse(node.finding_json)}});
    Json rate_row = Json::array(), latency_row = Json::array();
    for (size_t to = 0; to < cluster.nodes.size(); ++to) {
      rate_row.push_back(i == to ? Json(nullptr) : Json(cluster.links[i][to].bytes_per_s));
      latency_row.push_back(i == to ? Json(nullptr) : Json(cluster.links[i][to].latency_s));
    }
    rates.push_back(rate_row);
    latencies.push_back(latency_row);
    clocks.push_back(cluster.links[0][i].clock_s);
  }
  for (const SlowLink& link : slow_links(cluster.links))
    slow.push_back({{"from", cluster.nodes[link.from].name},
                    {"to", cluster.nodes[link.to].name},
                    {"bytes_per_s", link.bytes_per_s},
                    {"usual_bytes_per_s", link.usual}});
  return {{"nodes", nodes},
          {"bytes_per_s", rates},
          {"latency_s", latencies},
          {"clock_ahead_s", clocks},
          {"slow_links", slow}};
}

std::string cluster_text(const Cluster& cluster) {
  std::string text;
  for (const ClusterNode& node : cluster.nodes) {
    const Json json = Json::parse(node.node_json);
    text += fmt::format("{}  rank {}, {}, {}, {}, {}, {}\n", end_of(node), node.rank,
                        json["network"]["chosen"]["interface"].get<std::string>(),
                        count_of(json["processor"]["cores"].get<int64_t>(), "core"),
                        json["processor"]["isa"].get<std::string>(),
                        format_bytes(json["memory"]["bytes"].get<int64_t>()),
                        count_of(static_cast<int64_t>(json["gpus"].size()), "GPU"));
  }
  text += "\nbandwidth in MB/s, from the node of the row to that of the column\n";
  text += table(cluster, [](const Link& link) { return fmt::format("{:.4g}", link.bytes_per_s / 1e6); });
  text += "\nlatency in microseconds, half of a round trip\n";
  text += table(cluster, [](const Link& link) { return fmt::format("{:.0f}", link.latency_s * 1e6); });
  return text;
}

}  // namespace tandem::doctor
