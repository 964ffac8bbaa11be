#include "tandem/plan/catalogue.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "tandem/plan/csv.h"

namespace tandem::plan {
namespace {

constexpr double kGiga = 1e9, kTera = 1e12, kMicro = 1e-6, kGibi = 1 << 30;
// The driver, libraries and NCCL's buffers take some of it.
constexpr double kTakenGib = 1.5;

// "367" or "2:197 3:210 8:232".
std::map<int, double> parse_ring(const CsvRow& row) {
  std::map<int, double> ring;
  std::string_view text = row.text("ring_gbs");
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view item = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t colon = item.find(':');
    const std::string where = row.where() + ": ring_gbs";
    const bool by_count = colon != std::string_view::npos;
    const int count = by_count ? static_cast<int>(parse_number(item.substr(0, colon), where)) : 2;
    ring[count] = kGiga * parse_number(by_count ? item.substr(colon + 1) : item, where);
  }
  return ring;
}

Gpu parse_gpu(const CsvRow& row) {
  Gpu gpu;
  gpu.name = row.text("name");
  gpu.also = row.text("also");
  gpu.arch = row.text("arch");
  gpu.capability = row.number("cc");
  gpu.memory_bytes = (row.number("memory_gib") - kTakenGib) * kGibi;
  gpu.memory_bandwidth = row.number("memory_gbs") * kGiga;
  gpu.peak = row.number("peak_tflops") * kTera;
  gpu.matmul = row.number("matmul_tflops") * kTera;
  gpu.matmul_fp8 = row.number("fp8_tflops") * kTera;
  gpu.matmul_fp32 = row.number("fp32_tflops") * kTera;
  gpu.measured = row.text("measured") == "yes";
  gpu.sms = static_cast<int>(row.number("sms"));
  gpu.ring = parse_ring(row);
  gpu.in_switch = row.number("switch_gbs") * kGiga;
  gpu.link_latency = row.number("link_us") * kMicro;
  gpu.chunking = row.number("chunking");
  gpu.pcie = row.number("pcie_gbs") * kGiga;
  gpu.node_gpus = static_cast<int>(row.number("node_gpus"));
  gpu.node_network = row.number("node_gbps") / 8 * kGiga;
  return gpu;
}

NodeType parse_node(const CsvRow& row) {
  NodeType node;
  node.name = row.text("name");
  node.provider = row.text("provider");
  node.gpu = row.text("gpu");
  node.gpus = static_cast<int>(row.number("gpus"));
  node.cores = static_cast<int>(row.number_or("vcpu", 0));
  node.ram_bytes = row.number_or("ram_gib", 0) * kGibi;
  node.network = row.number_or("network_gbps", 0) / 8 * kGiga;
  node.hop = row.number("hop_us") * kMicro;
  node.chunking = row.number("chunking");
  node.fabric = row.text("fabric");
  node.date = row.text("date");
  return node;
}

}  // namespace

bool same_name(std::string_view a, std::string_view b) {
  const auto low = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](char x, char y) { return low(x) == low(y); });
}

const Gpu* Catalogue::find_gpu(std::string_view name) const {
  for (const Gpu& gpu : gpus) {
    if (same_name(gpu.name, name) || same_name(gpu.also, name)) return &gpu;
  }
  return nullptr;
}

const NodeType* Catalogue::find_node(std::string_view name) const {
  for (const NodeType& node : nodes) {
    if (same_name(node.name, name)) return &node;
  }
  return nullptr;
}

const Catalogue& catalogue() {
  static const Catalogue known = [] {
    Catalogue made;
    for (const CsvRow& row : parse_csv(catalogue_file("gpus.csv"), "gpus.csv"))
      made.gpus.push_back(parse_gpu(row));
    for (const CsvRow& row : parse_csv(catalogue_file("nodes.csv"), "nodes.csv"))
      made.nodes.push_back(parse_node(row));
    return made;
  }();
  return known;
}

}  // namespace tandem::plan
