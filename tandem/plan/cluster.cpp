#include "tandem/plan/cluster.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <functional>
#include <iterator>
#include <set>
#include <utility>
#include <vector>

#include "tandem/base/clipped.h"
#include "tandem/base/error.h"
#include "tandem/base/nearest.h"
#include "tandem/plan/collective_cost.h"
#include "tandem/plan/median.h"

namespace tandem::plan {
namespace {

// Of the machines that are lent with as many of these GPUs, the middle one's: 0 where none is known. The
// least would be some odd offer, on which nothing large could be saved.
double usual_host_memory(const Gpu& gpu) {
  std::vector<double> known;
  for (const NodeType& node : catalogue().nodes) {
    if (same_name(node.gpu, gpu.name) && node.gpus == gpu.node_gpus && node.ram_bytes > 0)
      known.push_back(node.ram_bytes);
  }
  return known.empty() ? 0 : median(std::move(known));
}

Cluster of_gpu(const Gpu& gpu) {
  Cluster cluster;
  cluster.name = gpu.name;
  cluster.gpu = gpu;
  cluster.gpus_per_node = gpu.node_gpus;
  cluster.network = gpu.node_network;
  cluster.host_memory = usual_host_memory(gpu);
  if (cluster.is_cpu()) cluster.cores = 1;
  return cluster;
}

Cluster of_node(const NodeType& node) {
  const Gpu* gpu = catalogue().find_gpu(node.gpu);
  TANDEM_CHECK(gpu != nullptr, "nodes.csv: {} has no GPU in gpus.csv", node.name);
  Cluster cluster = of_gpu(*gpu);
  cluster.name = node.name;
  cluster.gpus_per_node = node.gpus;
  cluster.network = node.network;
  cluster.hop = node.hop;
  cluster.chunking = node.chunking;
  cluster.host_memory = node.ram_bytes;
  return cluster;
}

Cluster by_name(const std::string& name, const std::string& flag) {
  const Catalogue& known = catalogue();
  const auto with_curves = [](Cluster cluster) {
    cluster.curves = catalogue_curves(cluster);
    return cluster;
  };
  if (const Gpu* gpu = known.find_gpu(name)) return with_curves(of_gpu(*gpu));
  if (const NodeType* node = known.find_node(name)) return with_curves(of_node(*node));
  std::vector<std::string_view> names;
  for (const Gpu& gpu : known.gpus) names.push_back(gpu.name);
  for (const NodeType& node : known.nodes) names.push_back(node.name);
  throw ConfigError(
      "{}: no such instance type, GPU or file; the nearest is {}; expected NAME[:COUNT], such as "
      "p5.48xlarge:64 or h100-sxm:8, or a YAML file",
      flag, nearest(name, names));
}

// What a file may say of a cluster, and where it goes.
struct FileKey {
  std::string_view name;
  double scale;
  std::function<void(Cluster&, double)> set;
};

const std::vector<FileKey>& file_keys() {
  static const std::vector<FileKey> keys = {
      {"gpus", 1, [](Cluster& c, double v) { c.gpus = static_cast<int>(v); }},
      {"gpus_per_node", 1, [](Cluster& c, double v) { c.gpus_per_node = static_cast<int>(v); }},
      {"network_gbps", 1e9 / 8, [](Cluster& c, double v) { c.network = v; }},
      {"hop_us", 1e-6, [](Cluster& c, double v) { c.hop = v; }},
      {"host_gbs", 1e9, [](Cluster& c, double v) { c.host_bandwidth = v; }},
      {"ram_gib", double{1 << 30}, [](Cluster& c, double v) { c.host_memory = v; }},
      {"cores", 1, [](Cluster& c, double v) { c.cores = static_cast<int>(v); }},
      {"disk_write_gbs", 1e9, [](Cluster& c, double v) { c.disk_write = v; }},
      {"disk_read_gbs", 1e9, [](Cluster& c, double v) { c.disk_read = v; }},
      {"fp32_tflops", 1e12, [](Cluster& c, double v) { c.gpu.matmul_fp32 = v; }},
      {"pcie_gbs", 1e9, [](Cluster& c, double v) { c.gpu.pcie = v; }},
      {"memory_gib", double{1 << 30}, [](Cluster& c, double v) { c.gpu.memory_bytes = v; }},
      {"memory_gbs", 1e9, [](Cluster& c, double v) { c.gpu.memory_bandwidth = v; }},
      {"peak_tflops", 1e12, [](Cluster& c, double v) { c.gpu.peak = v; }},
      {"matmul_tflops", 1e12, [](Cluster& c, double v) { c.gpu.matmul = v; }},
      {"fp8_tflops", 1e12, [](Cluster& c, double v) { c.gpu.matmul_fp8 = v; }},
      {"ring_gbs", 1e9,
       [](Cluster& c, double v) {
         c.gpu.ring = {{2, v}};
       }},
      {"switch_gbs", 1e9, [](Cluster& c, double v) { c.gpu.in_switch = v; }},
      {"link_us", 1e-6, [](Cluster& c, double v) { c.gpu.link_latency = v; }},
      {"compute_factor", 1, [](Cluster& c, double v) { c.compute_factor = v; }},
      {"attention_factor", 1, [](Cluster& c, double v) { c.attention_factor = v; }},
      {"pointwise_factor", 1, [](Cluster& c, double v) { c.pointwise_factor = v; }},
      {"launch_us", 1e-6, [](Cluster& c, double v) { c.launch = v; }},
      {"issue_us", 1e-6, [](Cluster& c, double v) { c.issue = v; }},
      {"reduces_once", 1, [](Cluster& c, double v) { c.reduces_once = v != 0; }},
      {"step_overhead_ms", 1e-3, [](Cluster& c, double v) { c.step_overhead = v; }},
      {"fused_attention", 1, [](Cluster& c, double v) { c.fused_attention = v != 0; }},
  };
  return keys;
}

// Far beyond what there is, and near enough that no plan overflows.
struct Bounds {
  double least = 0, most = 1e9;
  bool or_zero = false;
};
constexpr Bounds kSeconds{0, 1e6};
constexpr Bounds kBytes{1, 1e18};

// By the unit that a key's name ends with. A speed of 0 says that there is no such thing, where a plan can do
// without.
Bounds bounds_of(std::string_view key) {
  constexpr std::string_view kMayBeNone[] = {"network_gbps",   "ram_gib",       "switch_gbs",
                                             "disk_write_gbs", "disk_read_gbs", "fp8_tflops"};
  if (key.starts_with("gpus") || key == "cores") return {1, 1 << 20};
  if (key.ends_with("_us") || key.ends_with("_ms")) return {};
  if (key.ends_with("_factor")) return {1e-6, 1e6};
  if (!key.ends_with("s") && !key.ends_with("_gib")) return {0, 1};  // yes or no
  const auto end = std::end(kMayBeNone);
  return {1e-6, 1e9, std::find(std::begin(kMayBeNone), end, key) != end};
}

double number_in(const YAML::Node& node, const std::string& where, const Bounds& bounds) {
  double value = 0;
  const std::string text = node.IsScalar() ? node.Scalar() : "";
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  const bool fits = (value >= bounds.least && value <= bounds.most) || (bounds.or_zero && value == 0);
  if (!is_number || !fits)
    throw ConfigError("{}: expected a number of at least {} and at most {}{}, found {}", where, bounds.least,
                      bounds.most, bounds.or_zero ? ", or 0 for none" : "",
                      node.IsScalar() ? fmt::format("'{}'", clipped(text)) : "keys or a list");
  return value;
}

void set_key(Cluster& cluster, const std::string& path, const std::string& key, const YAML::Node& value) {
  std::vector<std::string_view> names = {"name", "gpu", "kernels", "collectives"};
  for (const FileKey& known : file_keys()) {
    names.push_back(known.name);
    if (known.name != key) continue;
    const double number = number_in(value, fmt::format("{}: {}", path, key), bounds_of(key));
    const bool counts = key.starts_with("gpus") || key == "cores";
    if (counts && number != std::floor(number))
      throw ConfigError("{}: {}: expected a whole number of at least 1, found {}", path, key, number);
    known.set(cluster, number * known.scale);
    return;
  }
  throw ConfigError("{}: there is no key '{}'; the nearest is '{}'", path, key, nearest(key, names));
}

// `collectives: {all_reduce 4: {65536: 1.2e-4}}`: seconds by collective, ranks and bytes. Of ranks that share
// cores, what each has to work: they do it at the same time.
void set_collectives(Cluster& cluster, const std::string& path, const YAML::Node& curves) {
  for (const auto& item : curves) {
    const std::string name = item.first.Scalar(), where = fmt::format("{}: collectives: {}", path, name);
    const size_t space = std::min(name.find(' '), name.size());
    int ranks = 0;
    const auto [end, error] =
        std::from_chars(name.data() + std::min(space + 1, name.size()), name.data() + name.size(), ranks);
    if (error != std::errc() || end != name.data() + name.size() || ranks < 2 || ranks > 1 << 20 ||
        !item.second.IsMap())
      throw ConfigError("{}: expected `all_reduce RANKS: {{BYTES: SECONDS}}`", where);
    const Op op = collective_named(name.substr(0, space));
    const double share = cluster.is_cpu() ? std::min(1.0, static_cast<double>(cluster.cores) / ranks) : 1;
    Curve& curve = cluster.curves[{op, ranks}] = Curve();
    for (const auto& point : item.second) {
      const double bytes = number_in(point.first, where, kBytes);
      const double seconds = number_in(point.second, where, kSeconds) * share;
      if (seconds <= 0) throw ConfigError("{}: expected bytes and seconds above 0", where);
      const Group group{ranks, std::min(ranks, cluster.gpus_per_node)};
      const double modelled = op == Op::Send ? modelled_send_seconds(cluster, 1, bytes)
                                             : modelled_seconds(cluster, op, group, bytes);
      curve.add(bytes, seconds / modelled);
    }
  }
}

// What the file says of links is truer than curves that were measured over others.
void forget_curves(Cluster& cluster, const YAML::Node& root) {
  const bool other_links = root["ring_gbs"] || root["switch_gbs"] || root["link_us"];
  const bool other_network = root["network_gbps"] || root["hop_us"] || root["gpus_per_node"];
  std::erase_if(cluster.curves, [&](const auto& item) {
    return item.first.second <= cluster.gpus_per_node ? other_links : other_network;
  });
}

Cluster from_file(const std::string& path) {
  YAML::Node root;
  try {
    root = YAML::LoadFile(path);
  } catch (const YAML::Exception& error) {
    throw ConfigError("{}:{}: {}", path, error.mark.line + 1, error.msg);
  }
  if (!root.IsMap() || !root["gpu"] || !root["gpu"].IsScalar())
    throw ConfigError("{}: expected a cluster: `gpu: h100-sxm` and `gpus: 16` at least", path);
  Cluster cluster = by_name(root["gpu"].Scalar(), fmt::format("{}: gpu: {}", path, root["gpu"].Scalar()));
  cluster.name = std::filesystem::path(path).stem().string();
  if (cluster.is_cpu()) cluster.gpus = 0;  // as many ranks as the mesh has
  forget_curves(cluster, root);
  std::set<std::string> seen;
  for (const auto& item : root) {
    const std::string key = item.first.IsScalar() ? item.first.Scalar() : "";
    if (!seen.insert(key).second) throw ConfigError("{}: {}: is given twice; keep one", path, key);
    if ((key == "collectives" || key == "kernels") && !item.second.IsMap())
      throw ConfigError("{}: {}: expected what `tandem calibrate` writes, names and seconds below it", path,
                        key);
    if (key == "name" && !item.second.IsScalar()) throw ConfigError("{}: name: expected a text", path);
    if (key == "gpu" || key == "collectives") continue;
    if (key == "name") {
      cluster.name = item.second.Scalar();
    } else if (key == "kernels") {
      for (const auto& kernel : item.second)
        cluster.kernels[kernel.first.Scalar()] =
            number_in(kernel.second, fmt::format("{}: kernels: {}", path, kernel.first.Scalar()), kSeconds);
    } else {
      set_key(cluster, path, key, item.second);
    }
  }
  if (cluster.gpu.matmul <= 0 || cluster.gpu.memory_bandwidth <= 0 || cluster.gpu.peak <= 0)
    throw ConfigError("{}: peak_tflops, matmul_tflops and memory_gbs must be above 0", path);
  if (root["collectives"] && root["collectives"].IsMap()) set_collectives(cluster, path, root["collectives"]);
  return cluster;
}

}  // namespace

Cluster find_cluster(const std::string& text) {
  const bool is_path =
      text.ends_with(".yaml") || text.ends_with(".yml") || text.find('/') != std::string::npos;
  if (is_path) {
    if (!std::filesystem::is_regular_file(text))
      throw ConfigError("--cluster {}: there is no such file", text);
    return from_file(text);
  }
  const size_t colon = text.rfind(':');
  // Instance types of some clouds have colons in their names.
  const bool known = catalogue().find_node(text) != nullptr;
  if (colon == std::string::npos || known) {
    Cluster cluster = by_name(text, "--cluster " + text);
    cluster.gpus = 0;
    return cluster;
  }
  const std::string count = text.substr(colon + 1);
  int gpus = 0;
  const auto [end, error] = std::from_chars(count.data(), count.data() + count.size(), gpus);
  if (error != std::errc() || end != count.data() + count.size() || gpus < 1 || gpus > 1 << 20)
    throw ConfigError("--cluster {}: expected a number of GPUs after the colon, found '{}'", text, count);
  Cluster cluster = by_name(text.substr(0, colon), "--cluster " + text);
  cluster.gpus = gpus;
  return cluster;
}

}  // namespace tandem::plan
