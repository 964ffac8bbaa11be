#include "tandem/plan/catalogue.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tandem/base/error.h"
#include "tandem/base/message_of_test.h"
#include "tandem/base/temporary_directory_test.h"
#include "tandem/plan/cluster.h"
#include "tandem/plan/csv.h"

namespace tandem::plan {
namespace {

TEST(Catalogue, EveryNodeHasAGpuAndEveryRowIsWhole) {
  const Catalogue& known = catalogue();
  EXPECT_GE(known.gpus.size(), 19u);
  EXPECT_GE(known.nodes.size(), 39u);
  for (const NodeType& node : known.nodes) {
    const Gpu* gpu = known.find_gpu(node.gpu);
    ASSERT_NE(gpu, nullptr) << node.name;
    EXPECT_GE(node.gpus, 1) << node.name;
    EXPECT_EQ(node.date.size(), 10u) << node.name;
  }
  for (const Gpu& gpu : known.gpus) {
    EXPECT_GT(gpu.memory_bytes, 0) << gpu.name;
    EXPECT_GT(gpu.matmul, 0) << gpu.name;
    EXPECT_LE(gpu.matmul, gpu.peak) << gpu.name;
    EXPECT_FALSE(gpu.ring.empty()) << gpu.name;
    EXPECT_EQ(gpu.ring.begin()->first, 2) << gpu.name;
  }
}

TEST(Catalogue, ClustersAreFoundByGpuAndByInstance) {
  const Cluster gpu = find_cluster("h100-sxm:64");
  EXPECT_EQ(gpu.gpus, 64);
  EXPECT_EQ(gpu.nodes(), 8);
  EXPECT_EQ(find_cluster("H100-80-SXM").gpu.name, "h100-sxm");
  const Cluster node = find_cluster("p4de.24xlarge:16");
  EXPECT_EQ(node.gpu.name, "a100-sxm");
  EXPECT_DOUBLE_EQ(node.network, 50e9);
}

TEST(Catalogue, AnUnknownClusterNamesTheNearest) {
  EXPECT_NE(message_of<ConfigError>([] { find_cluster("p5.48xlrge:8"); }).find("p5.48xlarge"),
            std::string::npos);
  EXPECT_NE(message_of<ConfigError>([] { find_cluster("h100-sxm:many"); }).find("'many'"), std::string::npos);
}

TEST(Catalogue, AClusterOfOnesOwn) {
  const TemporaryDirectory folder;
  const auto write = [&](const std::string& text) {
    const std::string path = (folder.path() / "lab.yaml").string();
    std::ofstream(path) << text;
    return path;
  };
  const Cluster lab = find_cluster(write("gpu: h100-sxm\ngpus: 16\nnetwork_gbps: 400\nhop_us: 20\n"));
  EXPECT_EQ(lab.name, "lab");
  EXPECT_EQ(lab.gpus, 16);
  EXPECT_DOUBLE_EQ(lab.network, 50e9);
  const std::string path = write("gpu: h100-sxm\nnetworks_gbps: 16\n");
  EXPECT_NE(message_of<ConfigError>([&] { find_cluster(path); }).find("'network_gbps'"), std::string::npos);
  write("gpu: h100-sxm\nnetwork_gbps: fast\n");
  EXPECT_NE(message_of<ConfigError>([&] { find_cluster(path); }).find("'fast'"), std::string::npos);
}

TEST(Csv, QuotesAndComments) {
  const auto rows = parse_csv("# note\na,b\n\"x, \"\"y\"\"\",2\n", "t.csv");
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].text("a"), "x, \"y\"");
  EXPECT_DOUBLE_EQ(rows[0].number("b"), 2);
  EXPECT_NE(message_of<ConfigError>([] { parse_csv("a,b\n1\n", "t.csv"); }).find("t.csv:2"),
            std::string::npos);
}

}  // namespace
}  // namespace tandem::plan
