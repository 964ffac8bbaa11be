#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tandem/base/error.h"
#include "tandem/plan/collective_cost.h"
#include "tandem/plan/command_cost.h"
#include "tandem/plan/csv.h"

namespace tandem::plan {
namespace {

const Gpu& gpu(const char* name) { return *catalogue().find_gpu(name); }

TEST(Matmul, LargeProductsComeNearTheMeasuredPeak) {
  const Gpu& h200 = gpu("h200-sxm");
  const double flops = 2.0 * 16384 * 8192 * 8192;
  const double rate = flops / matmul_seconds(h200, 16384, 8192, 8192, h200.matmul);
  EXPECT_GT(rate, 0.85 * h200.matmul);
  EXPECT_LT(rate, h200.matmul);
}

TEST(Matmul, TheLastWaveCounts) {
  const Gpu& a100 = gpu("a100-sxm");
  // 108 multiprocessors: 108 tiles of 128 x 256 are one wave, 109 are two.
  const double full = matmul_seconds(a100, 128 * 108, 256, 4096, a100.matmul);
  const double more = matmul_seconds(a100, 128 * 109, 256, 4096, a100.matmul);
  EXPECT_GT(more, 1.05 * full);
}

TEST(Matmul, NeverFasterThanTheRate) {
  const Gpu& h100 = gpu("h100-sxm");
  for (double m : {1.0, 64.0, 1000.0, 5000.0}) {
    for (double k : {64.0, 777.0, 12288.0})
      EXPECT_GE(matmul_seconds(h100, m, m, k, h100.matmul), 2 * m * m * k / h100.matmul);
  }
}

TEST(Group, NeighboursOnTheTensorAxisShareNodes) {
  const MeshShape mesh{.data = 16, .tensor = 4, .pipeline = 2};
  EXPECT_EQ(group_of(mesh, Axis::Tensor, 8).nodes(), 1);
  EXPECT_EQ(group_of(mesh, Axis::Data, 8).per_node, 2);
  EXPECT_EQ(group_of(mesh, Axis::Data, 8).nodes(), 8);
  EXPECT_EQ(group_of(mesh, Axis::Pipeline, 8).per_node, 1);
  EXPECT_EQ(group_of(mesh, Axis::World, 8).nodes(), 16);
}

// Measured curves: most points within 15 %, and the mean well within.
TEST(Collectives, AreWhereTheyWereMeasured) {
  struct Curve {
    double worst = 0, sum = 0;
    int points = 0, within = 0;
  };
  std::map<std::string, Curve> curves;
  Curve all;
  for (const CsvRow& row : parse_csv(catalogue_file("collectives.csv"), "collectives.csv")) {
    Cluster cluster = find_cluster(row.text("cluster"));
    const int gpus = static_cast<int>(row.number("gpus"));
    const Op op = row.text("collective") == "all_reduce"   ? Op::AllReduce
                  : row.text("collective") == "all_gather" ? Op::AllGather
                                                           : Op::ReduceScatter;
    const Group group{gpus, std::min(gpus, cluster.gpus_per_node)};
    const double measured = row.number("microseconds") * 1e-6;
    const double error = std::abs(collective_seconds(cluster, op, group, row.number("bytes")) / measured - 1);
    for (Curve* curve : {&curves[row.text("cluster") + " " + row.text("gpus")], &all}) {
      curve->worst = std::max(curve->worst, error);
      curve->sum += error;
      ++curve->points;
      curve->within += error <= 0.15;
    }
  }
  for (const auto& [name, curve] : curves)
    std::printf("  %-28s %3d points, mean %4.1f %%, worst %4.1f %%, %d within 15 %%\n", name.c_str(),
                curve.points, 100 * curve.sum / curve.points, 100 * curve.worst, curve.within);
  EXPECT_LT(all.sum / all.points, 0.10);
  EXPECT_GT(all.within, 0.8 * all.points);
}

TEST(Collectives, OnNodesWithoutANetworkAreRefused) {
  const Cluster cluster = find_cluster("gpu_8x_h100_sxm5:16");
  EXPECT_THROW(collective_seconds(cluster, Op::AllReduce, {16, 8}, 1e6), ConfigError);
  EXPECT_GT(collective_seconds(cluster, Op::AllReduce, {8, 8}, 1e6), 0);
}

}  // namespace
}  // namespace tandem::plan
