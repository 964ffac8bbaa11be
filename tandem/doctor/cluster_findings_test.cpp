#include "tandem/doctor/cluster_findings.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tandem::doctor {
namespace {

Cluster cluster(int count, double bytes_per_s) {
  Cluster made;
  Node node;
  node.version = "1";
  node.program_isa = "avx2";
  node.cores = 8;
  for (int i = 0; i < count; ++i) {
    const std::string number = std::to_string(i);
    made.nodes.push_back({i, "node-" + number, "10.0.0." + number, to_json(node).dump(), "[]"});
  }
  made.links.assign(made.nodes.size(), std::vector<Link>(made.nodes.size(), Link{bytes_per_s, 1e-5, 0}));
  return made;
}

TEST(SlowLinks, NoneWhereAllAreAlike) { EXPECT_TRUE(find_problems(cluster(4, 1e9)).empty()); }

TEST(SlowLinks, BothEndsOfTheSlowOneAreNamed) {
  Cluster one = cluster(3, 1e9);
  one.links[1][2].bytes_per_s = 2.5e6;
  const std::vector<Finding> found = find_problems(one);
  ASSERT_EQ(1u, found.size());
  EXPECT_EQ("from node-1 (10.0.0.1) to node-2 (10.0.0.2): 2.5 MB/s, where 1000 MB/s is usual", found[0].what);
  EXPECT_FALSE(found[0].breaks);
}

TEST(SlowLinks, OneDirectionOfTwoNodes) {
  Cluster two = cluster(2, 1e9);
  two.links[1][0].bytes_per_s = 1e8;
  const std::vector<SlowLink> slow = slow_links(two.links);
  ASSERT_EQ(1u, slow.size());
  EXPECT_EQ(1, slow[0].from);
  EXPECT_EQ(0, slow[0].to);
}

TEST(SlowLinks, ANodeThatIsSlowAltogetherCannotHideAmongThree) {
  Cluster three = cluster(3, 1e9);
  for (size_t other : {0, 2}) three.links[1][other].bytes_per_s = three.links[other][1].bytes_per_s = 1e7;
  const std::vector<Finding> found = find_problems(three);
  ASSERT_EQ(5u, found.size());  // four links, and the node
  EXPECT_EQ("all that node-1 (10.0.0.1) sends is slow", found[4].what);
}

TEST(Clusters, ClocksAndMachinesThatDifferAreNamed) {
  Cluster two = cluster(2, 1e9);
  two.links[0][1].clock_s = -900;
  Node other;
  other.version = "2";
  other.program_isa = "avx512";
  other.cores = 4;
  other.gpus.push_back({"H100", 80});
  two.nodes[1].node_json = to_json(other).dump();
  const std::vector<Finding> found = find_problems(two);
  ASSERT_EQ(5u, found.size());
  EXPECT_TRUE(found[0].breaks);
  EXPECT_EQ("different versions of tandem: 1 on node-0; 2 on node-1", found[0].what);
  EXPECT_EQ("different GPUs: 1 x H100 on node-1; no GPU on node-0", found[2].what);
  EXPECT_TRUE(found[4].breaks);
  EXPECT_EQ("that of node-1 (10.0.0.1) is 15m 00s behind that of node-0 (10.0.0.0)", found[4].what);
}

}  // namespace
}  // namespace tandem::doctor
