// Collectives that were measured, against the model of them (collective_cost.h): NCCL changes its protocol
// with the size, by rules that no formula of ours has, so that measured points of the same machines come
// first.
#pragma once

#include <map>
#include <string_view>
#include <utility>

#include "tandem/ir/op.h"

namespace tandem::plan {

struct Cluster;

// What was measured over what the model says, by bytes.
class Curve {
 public:
  void add(double bytes, double ratio);  // of points that are there already: their mean
  void remove(double bytes) { points_.erase(bytes); }
  size_t size() const { return points_.size(); }
  double at(double bytes) const;  // between two points by the logarithm of the size; the ends go on

 private:
  struct Point {
    double log_ratio = 0;
    int count = 0;
  };
  std::map<double, Point> points_;
};

// By collective and number of ranks.
using CollectiveCurves = std::map<std::pair<Op, int>, Curve>;

Op collective_named(std::string_view name);  // "all_reduce"; throws ConfigError

// The catalogue's for such a cluster: of its GPU within a node, of its instance type between nodes. Curves of
// one or two points are no curves.
CollectiveCurves catalogue_curves(const Cluster& cluster);

}  // namespace tandem::plan
