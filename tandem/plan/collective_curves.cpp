#include "tandem/plan/collective_curves.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/plan/cluster.h"
#include "tandem/plan/collective_cost.h"
#include "tandem/plan/csv.h"

namespace tandem::plan {
namespace {

constexpr size_t kFewestPoints = 3;

const std::vector<CsvRow>& measured_rows() {
  static const std::vector<CsvRow> rows = parse_csv(catalogue_file("collectives.csv"), "collectives.csv");
  return rows;
}

}  // namespace

void Curve::add(double bytes, double ratio) {
  Point& point = points_[bytes];
  point.log_ratio = (point.log_ratio * point.count + std::log(ratio)) / (point.count + 1);
  ++point.count;
}

double Curve::at(double bytes) const {
  if (points_.empty()) return 1;
  const auto above = points_.lower_bound(bytes);
  if (above == points_.end()) return std::exp(points_.rbegin()->second.log_ratio);
  if (above == points_.begin()) return std::exp(above->second.log_ratio);
  const auto below = std::prev(above);
  const double way = std::log(bytes / below->first) / std::log(above->first / below->first);
  return std::exp(below->second.log_ratio * (1 - way) + above->second.log_ratio * way);
}

Op collective_named(std::string_view name) {
  if (name == "all_reduce") return Op::AllReduce;
  if (name == "all_gather") return Op::AllGather;
  if (name == "reduce_scatter") return Op::ReduceScatter;
  if (name == "send") return Op::Send;
  throw ConfigError("expected all_reduce, all_gather, reduce_scatter or send, found '{}'", name);
}

CollectiveCurves catalogue_curves(const Cluster& cluster) {
  CollectiveCurves curves;
  for (const CsvRow& row : measured_rows()) {
    const auto ranks = static_cast<int>(row.number("gpus"));
    const bool within = ranks <= cluster.gpus_per_node;
    const bool is_its_node = same_name(row.text("cluster"), cluster.name);
    const NodeType* node = catalogue().find_node(row.text("cluster"));
    const bool is_its_gpu = same_name(node != nullptr ? node->gpu : row.text("cluster"), cluster.gpu.name);
    if (within ? !is_its_gpu : !is_its_node) continue;
    const Op op = collective_named(row.text("collective"));
    const double bytes = row.number("bytes");
    const Group group{ranks, std::min(ranks, cluster.gpus_per_node)};
    curves[{op, ranks}].add(bytes,
                            row.number("microseconds") * 1e-6 / modelled_seconds(cluster, op, group, bytes));
  }
  std::erase_if(curves, [](const auto& item) { return item.second.size() < kFewestPoints; });
  return curves;
}

}  // namespace tandem::plan
