#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tandem/base/error.h"
#include "tandem/base/temporary_directory_test.h"
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

struct Measured {
  Cluster cluster;
  Op op;
  Group group;
  double bytes, seconds;
};

std::vector<Measured> measured_collectives() {
  std::vector<Measured> list;
  for (const CsvRow& row : parse_csv(catalogue_file("collectives.csv"), "collectives.csv")) {
    Cluster cluster = find_cluster(row.text("cluster"));
    const int gpus = static_cast<int>(row.number("gpus"));
    const Group group{gpus, std::min(gpus, cluster.gpus_per_node)};
    list.push_back({std::move(cluster), collective_named(row.text("collective")), group, row.number("bytes"),
                    row.number("microseconds") * 1e-6});
  }
  return list;
}

struct Errors {
  double worst = 0, sum = 0;
  int points = 0, within = 0;
  void add(double planned, double measured) {
    const double error = std::abs(planned / measured - 1);
    worst = std::max(worst, error);
    sum += error;
    ++points;
    within += error <= 0.15;
  }
};

TEST(Collectives, AreWhereTheyWereMeasured) {
  Errors all;
  for (const Measured& one : measured_collectives())
    all.add(collective_seconds(one.cluster, one.op, one.group, one.bytes), one.seconds);
  EXPECT_LT(all.worst, 0.15);
  EXPECT_LT(all.sum / all.points, 0.02);
}

// What the model and the neighbours on the curve say of a point that is left out.
TEST(Collectives, AreNearWhatWasMeasuredWithoutThePointItself) {
  Errors model, neighbours;
  for (Measured& one : measured_collectives()) {
    model.add(modelled_seconds(one.cluster, one.op, one.group, one.bytes), one.seconds);
    const auto curve = one.cluster.curves.find({one.op, one.group.size});
    if (curve == one.cluster.curves.end()) continue;
    curve->second.remove(one.bytes);
    neighbours.add(collective_seconds(one.cluster, one.op, one.group, one.bytes), one.seconds);
  }
  EXPECT_LT(model.sum / model.points, 0.10);
  EXPECT_GT(model.within, 0.8 * model.points);
  EXPECT_LT(neighbours.sum / neighbours.points, 0.05);
  EXPECT_GT(neighbours.within, 0.9 * neighbours.points);
}

TEST(Collectives, LinksThatAFileChangesHaveNoMeasuredCurve) {
  const TemporaryDirectory folder;
  const std::string slow =
      folder.write("slow.yaml", "gpu: p5.48xlarge\ngpus: 16\nnetwork_gbps: 100\n").string();
  const Cluster as_lent = find_cluster("p5.48xlarge:16"), changed = find_cluster(slow);
  EXPECT_TRUE(as_lent.curves.contains({Op::AllReduce, 16}));
  EXPECT_FALSE(changed.curves.contains({Op::AllReduce, 16}));
  EXPECT_GT(collective_seconds(changed, Op::AllReduce, {16, 8}, 1e9),
            4 * collective_seconds(as_lent, Op::AllReduce, {16, 8}, 1e9));
}

TEST(Collectives, OnNodesWithoutANetworkAreRefused) {
  const Cluster cluster = find_cluster("gpu_8x_h100_sxm5:16");
  EXPECT_THROW(collective_seconds(cluster, Op::AllReduce, {16, 8}, 1e6), ConfigError);
  EXPECT_GT(collective_seconds(cluster, Op::AllReduce, {8, 8}, 1e6), 0);
}

}  // namespace
}  // namespace tandem::plan
