#include "tandem/doctor/interfaces.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tandem/base/file.h"
#include "tandem/base/temporary_directory_test.h"

namespace tandem::doctor {
namespace {

TEST(ReadInterfaces, KnowsLoopback) {
  const std::vector<Interface> all = read_interfaces();
  const auto loopback = std::find_if(all.begin(), all.end(), [](const auto& one) { return one.loopback; });
  ASSERT_NE(all.end(), loopback);
  EXPECT_FALSE(loopback->physical);
  EXPECT_GT(loopback->mtu, 0);
  EXPECT_EQ(loopback->up, !loopback->addresses.empty());
}

TEST(ReadRdmaDevices, TakesActivePortsFromTheKernelsTree) {
  const TemporaryDirectory tree;
  for (const auto& [name, state] : {std::pair{"mlx5_0", "4: ACTIVE"}, std::pair{"mlx5_1", "1: DOWN"}}) {
    std::filesystem::create_directories(tree.path() / name / "ports/1");
    write_atomically(tree.path() / name / "ports/1/state", std::string(state) + "\n");
  }
  const std::vector<RdmaDevice> devices = read_rdma_devices(tree.path());
  ASSERT_EQ(2u, devices.size());
  EXPECT_TRUE(devices[0].active && !devices[1].active);
  EXPECT_TRUE(read_rdma_devices(tree.path() / "missing").empty());
}

TEST(ChooseInterface, ItIsTheOneWithTheAddress) {
  const std::vector<Interface> both = {{"lo", {"127.0.0.1"}, true, true, false, {}, 0},
                                       {"eth0", {"10.0.0.1", "10.0.0.2"}, true, false, true, {}, 0}};
  const Choice choice = choose_interface(both, "10.0.0.2", "node-a");
  EXPECT_EQ("eth0", choice.interface);
  EXPECT_EQ("10.0.0.2 is this machine's end of the way to node-a", choice.why);
  EXPECT_EQ("", choose_interface(both, "127.0.0.1", "node-a").interface);
}

TEST(NetworkSettings, NameTheInterfaceAndActiveDevices) {
  EXPECT_TRUE(network_settings({}, {}).empty());
  const std::vector<Setting> settings = network_settings(
      {"eth0", "10.0.0.1", "why"},
      {{"mlx5_0", "mlx5_core", true}, {"mlx5_1", "mlx5_core", false}, {"rdmap0", "efa", true}});
  ASSERT_EQ(4u, settings.size());
  EXPECT_EQ("=eth0", settings[0].value);
  EXPECT_EQ("eth0", settings[1].value);
  EXPECT_EQ("=mlx5_0", settings[2].value);
  EXPECT_EQ("FI_PROVIDER", settings[3].variable);
}

TEST(IsNamed, AsNcclReadsItsList) {
  EXPECT_TRUE(is_named("eth", "eth0"));
  EXPECT_TRUE(is_named("ib,eth", "eth0"));
  EXPECT_FALSE(is_named("=eth", "eth0"));
  EXPECT_TRUE(is_named("=eth0,eth1", "eth1"));
  EXPECT_FALSE(is_named("^eth", "eth0"));
  EXPECT_TRUE(is_named("^docker,lo", "eth0"));
  EXPECT_FALSE(is_named("^=eth0", "eth0"));
}

}  // namespace
}  // namespace tandem::doctor
